"""The data that is needed to start an agent: program, environment and configuration; and a digest of all that.

The process is found again by a mark in its command line. The mark has the digest, so a process with another digest was
started with another configuration.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

AGENT_BIN: Final = "/usr/local/lib/holdfast-agents/bin"
"""Where agents are in sandboxes that show the host's /usr; in the image ``agent`` they are on the normal PATH."""

OUTPUT_BYTES: Final = 16 << 20
"""How much of an agent's output the runner keeps: more than one turn writes, so that a late reader misses nothing."""

_MARK = re.compile(r"^: holdfast-agent:([a-z0-9-]{1,40}):([0-9a-f]{16}):([0-9]{1,9}):([0-9a-f]{16});")


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start an agent in one channel."""

    agent: str
    """Letters a to z, digits and dashes."""
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    """Never a secret."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Path below the agent's own directory -> content. Written before each start."""
    cwd: str = "/workspace"
    output_bytes: int = OUTPUT_BYTES
    told_of_cuts: bool = False
    """Whether its output also contains notices about its models: ``lines.CUT`` and the others."""

    @property
    def digest(self) -> str:
        """A digest of all that the process only reads when it is started."""
        files = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(self.files.items())}
        told = [self.agent, list(self.argv), sorted(self.env.items()), sorted(files.items()), self.cwd]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]

    def command(self, tag: str, generation: int) -> str:
        """Return the command line for bash. The mark in it does nothing; it is for finding the process in a list."""
        return (
            f"{mark(self.agent, tag, generation, self.digest)} "
            f'export PATH={AGENT_BIN}:"$PATH"; exec {shlex.join(self.argv)}'
        )


@dataclass(frozen=True, slots=True)
class LaunchMark:
    agent: str
    tag: str
    generation: int
    digest: str


def mark(agent: str, tag: str, generation: int, digest: str) -> str:
    return f": holdfast-agent:{agent}:{tag}:{generation}:{digest};"


def mark_of(command: str) -> LaunchMark | None:
    """Return the mark in this command line; None if it did not start an agent."""
    found = _MARK.search(command)
    return LaunchMark(found[1], found[2], int(found[3]), found[4]) if found else None
