"""The table of all agents: each one's adapter, the program that it needs in the image, and how much memory it needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

IMAGE = "agent"
"""Our own image with agents in it; see ``images/recipes``."""


@dataclass(frozen=True, slots=True)
class KnownAgent:
    """One agent. ``adapter`` is ``module:class``, which is imported when the agent is first used."""

    adapter: str
    program: str | None = None
    """The program that must be on the PATH of a sandbox; None: the adapter brings it along."""
    package: str | None = None
    """The npm package that has the program."""
    in_image: bool = False
    """Whether the image ``agent`` has it."""
    memory_mb: int | None = None
    """The memory of a sandbox with this agent and some other work; None: the daemon's default is enough."""


_ACP = "holdfast.agents.acp.adapter"

KNOWN: Final[Mapping[str, KnownAgent]] = {
    "scripted": KnownAgent("holdfast.agents.scripted.adapter:ScriptedAgent"),
    "pi": KnownAgent("holdfast.agents.pi.adapter:PiAgent", "pi", "@earendil-works/pi-coding-agent", True, 768),
    "opencode": KnownAgent("holdfast.agents.opencode.adapter:OpenCodeAgent", "opencode", "opencode-ai", True, 1536),
    "sandbox-agent": KnownAgent(
        "holdfast.agents.sandbox_agent.adapter:SandboxAgent", "sandbox-agent", "sandbox-agent", True, 1536
    ),
    "sandbox-agent-pi": KnownAgent(
        "holdfast.agents.sandbox_agent.adapter:SandboxAgentPi", "sandbox-agent", "sandbox-agent", False, 768
    ),
    "opencode-acp": KnownAgent(f"{_ACP}:OpencodeAcp", "opencode", "opencode-ai", True, 1536),
    "claude": KnownAgent(f"{_ACP}:Claude", "claude-agent-acp", "@agentclientprotocol/claude-agent-acp", False, 1024),
    "codex": KnownAgent(f"{_ACP}:Codex", "codex-acp", "@zed-industries/codex-acp", False, 768),
    "pi-acp": KnownAgent(f"{_ACP}:PiAcp", "pi-acp", "pi-acp", False, 768),
    "gemini": KnownAgent(f"{_ACP}:Gemini", "gemini", "@google/gemini-cli", False, 1024),
}


def how_to_install(agent: str) -> str:
    """Advice for a user whose sandbox does not have this agent."""
    known = KNOWN.get(agent)
    if known is None or known.program is None:
        return "its program must be on the PATH of the sandbox"
    on_host = f"for sandboxes of the image host: run `holdfast agents install {agent}`, once, as root"
    if known.in_image:
        return (
            f"{on_host}; or run `holdfast image build {IMAGE}`, and make a new thread with that image "
            f"(`holdfast chat --image {IMAGE}`, or options.image)"
        )
    return (
        f"{on_host}; or add the npm package {known.package} to a recipe that extends {IMAGE}, build it with `holdfast "
        "image build`, and make a new thread with that image (`holdfast chat --image NAME`, or options.image)"
    )
