"""The blocks of code in README and docs: found, and run as a reader would run them, page by page, from the top.

A block that is not run has a comment with the reason before it: ``<!-- not run: … -->``.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN = ("sh", "python")
_BLOCK = re.compile(r"(?:^<!-- not run: (?P<reason>.+?) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
SECONDS = 150


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    reason: str | None


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, found.start("text")), found["language"], found["text"], found["reason"])
        for found in _BLOCK.finditer(text)
    ]


CURL = """#!/bin/sh
# A refusal is a failure; a stream without an end is followed for a moment.
for word; do case $word in -N | -sN) exec_follow=yes ;; esac; done
if [ -z "$exec_follow" ]; then exec {curl} --fail-with-body --max-time 60 "$@"; fi
{curl} --fail-with-body --max-time 2 "$@"
code=$?
[ $code = 28 ] || exit $code
"""

HOLDFAST = """#!/bin/sh
case " $* " in *" --no-follow "*) ;; " events "*)
    timeout -s INT 3 {holdfast} "$@"
    [ $? = 124 ] && exit 0 ;;
" forward "*)
    timeout -s INT 3 {holdfast} "$@"
    [ $? = 124 ] && exit 0 ;;
esac
exec {holdfast} "$@"
"""

SHELL = """
set -o pipefail -E
trap 'echo "@@ line $HERE: $BASH_COMMAND (exit status $?)" >&2' ERR
url=$HOLDFAST_URL key=$HOLDFAST_API_KEY auth="Authorization: Bearer $HOLDFAST_API_KEY"
a_session() {
    id=$(holdfast new)
    exec_id=$(holdfast exec --json $id -- true | sed 's/.*"exec_id": "\\([^"]*\\)".*/\\1/')
}
a_session
other=$(holdfast new)
holdfast rm $(holdfast new --workspace notes) >/dev/null
"""

PYTHON = """
import ast, asyncio, inspect, signal, sys, traceback
from holdfast.sdk import Client, SyncClient

class Enough(BaseException):  # what has no end was followed for a moment
    pass

def enough(*_):
    raise Enough

signal.signal(signal.SIGALRM, enough)

async def apart(code, scope):  # a part of an async function: `client` and `session` are those of `Client`
    async with Client() as client:
        there = await client.get_session(scope["session"].id)
        await eval(code, scope | {"client": client, "session": there})

def run(line, text, scope, seconds):
    signal.alarm(seconds)
    try:
        code = compile(text, "block", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(apart(code, scope))
        else:
            exec(code, scope)
        signal.alarm(0)
    except Enough:
        pass
    except BaseException:
        signal.alarm(0)
        traceback.print_exc()
        print(f"@@ line {line}", file=sys.stderr)

client = SyncClient()
scope = {"__name__": "block", "client": client, "session": client.create_session(), "slack_event_id": "Ev1"}
"""

_ENDLESS = re.compile(r"client\.events\(|\.watch\(|terminal\.read\(\)|serve_forever")
"""What a reader ends with Ctrl-C: it is followed for a moment."""


_ON_THE_MACHINE = re.compile(
    r"(?<!holdfast )\b(pip|apt|apt-get|docker|systemctl|kill|pkill|mount|umount|rmdir|make|git pull|sudo)\b"
    r"|\bholdfast up\b|\brm -r"
)


def acts_on_the_machine(block: Block) -> bool:
    """Whether it may change more than the daemon of the test: such a block is never run, whatever the page says."""
    return block.language == "sh" and _ON_THE_MACHINE.search(re.sub(r"#.*", "", block.text)) is not None


class Reader:
    """Somebody with a daemon, in a folder with the files that the pages speak of."""

    def __init__(self, folder: Path, environment: dict[str, str], replaced: dict[str, str], curl: str) -> None:
        self._folder = folder
        self._environment = environment
        self._replaced = replaced
        (folder / "bin").mkdir()
        (folder / "bin" / "curl").write_text(CURL.format(curl=curl))
        (folder / "bin" / "curl").chmod(0o755)
        (folder / "bin" / "holdfast").write_text(HOLDFAST.format(holdfast=Path(sys.executable).with_name("holdfast")))
        (folder / "bin" / "holdfast").chmod(0o755)
        self._files(folder)

    def _files(self, folder: Path) -> None:
        for name in ("notes.txt", "report.csv", "a.csv", "big.bin", "app.py"):
            (folder / name).write_text("1,2\n")
        (folder / "image" / "bin").mkdir(parents=True)
        (folder / "image" / "bin" / "sh").write_text("nothing is needed in an image\n")
        with tarfile.open(folder / "tiny.tar", "w") as tar:
            tar.add(folder / "image", ".")
        (folder / ".venv" / "bin").mkdir(parents=True)
        (folder / ".venv" / "bin" / "activate").touch()
        shutil.copytree(ROOT / "examples", folder / "examples")
        for name in ("project", "src", "docs"):
            (folder / name).mkdir()
            (folder / name / "README").write_text("read me\n")

    def shell(self, found: list[Block]) -> list[str]:
        """What went wrong, one line for each command that failed."""
        parts = [SHELL]
        for one in found:
            if "key rm ada" in one.text and "key add ada " not in one.text:
                parts.append("holdfast key add ada --scope use >/dev/null\n")  # the first example has removed it
            parts.append(f"HERE={one.line}\n{self._as_here(one.text)}\n")
            if "DELETE" in one.text or "holdfast rm" in one.text:
                parts.append("a_session\n")
        parts.append("exit 0\n")
        return self._failures(["bash", "-c", "".join(parts)])

    def python(self, found: list[Block]) -> list[str]:
        parts = [PYTHON, *(self._python_call(one) for one in found)]
        return self._failures([sys.executable, "-c", "".join(parts)])

    def _python_call(self, one: Block) -> str:
        seconds = 5 if _ENDLESS.search(one.text) else SECONDS
        return f"run({one.line}, {self._as_here(one.text)!r}, scope, {seconds})\n"

    def _as_here(self, text: str) -> str:
        for there, here in self._replaced.items():
            text = text.replace(there, here)
        return text

    def _failures(self, command: list[str]) -> list[str]:
        path = f"{self._folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        with subprocess.Popen(
            command,
            cwd=self._folder,
            env={**os.environ, **self._environment, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as running:
            try:
                out, err = running.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
                out, err = running.communicate()
        failed = [line for line in err.splitlines() if line.startswith("@@")]
        if running.returncode or failed:
            return [*failed, f"exit status {running.returncode}", out[-3000:], err[-6000:]]
        return []
