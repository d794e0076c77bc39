"""The scripted agent's program, with faults: put into a sandbox in the place of ``main``, which is ``sound`` there.

A file ``FAULTS/OP`` says how the next request of that kind is answered; with ``always`` behind it, all of them. It runs
where only the runtime bundle's Python is.
"""

from __future__ import annotations

import os
import sys

from holdfast.agents.scripted.inside import sound  # type: ignore[attr-defined]  # what main is called in there
from holdfast.protocol import compact_json

FAULTS = "/workspace/.faults"  # as in faulty_agent


def _fault(op: str) -> str | None:
    try:
        with open(f"{FAULTS}/{op}") as file:
            word, _, how = file.read().partition(" ")
    except OSError:
        return None
    if how != "always":
        os.unlink(f"{FAULTS}/{op}")  # noqa: PTH108 - the bundle's Python is small
    return word


class Program(sound.Program):  # type: ignore[misc]  # it has no type here
    def _take(self, line: bytes) -> None:
        request = compact_json.decode(line)
        assert isinstance(request, dict)
        fault = _fault(str(request["op"]))
        if fault is None:
            super()._take(line)
        elif fault == "5xx":
            sound.say({"re": request["id"], "error": {"code": "failed", "message": "503 Service Unavailable"}})
        elif fault == "404":
            sound.say({"re": request["id"], "error": {"code": "session_missing", "message": "404 Not Found"}})
        elif fault == "garbage":
            os.write(1, b"<html><body>Bad Gateway</body></html>\n")
            sound.say({"re": request["id"], "huh": ["?"]})
        elif fault == "lost":  # it is done, and only the answer is not heard
            say, sound.say = sound.say, lambda _line: None
            super()._take(line)
            sound.say = say
        else:
            assert fault == "nothing"


def main() -> None:
    try:
        Program(sys.argv[1]).run()
    except BrokenPipeError:
        os._exit(1)
