"""A thread's git repository in its sandbox: cloned once, whole or not at all, and never over anything that is there.

Git works in a directory beside the target, which is renamed when all is done. So what a crash leaves is never taken for
a clone, and whoever comes next either waits for the git that still runs, or begins anew.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Final

import structlog

from holdfast.errors import BadInput, ProcessNotFound, RepoFailed
from holdfast.sessions.use.processes import Processes, ProcessRequest, ProcessView
from holdfast.threads.types import Repo

log = structlog.get_logger(__name__)

WORKSPACE: Final = "/workspace"
TRIES: Final = 3
_MARK = "holdfast-clone"
_WAIT_MS = 10_000
_TAIL_BYTES = 2000
_MOST_LINE = 300
_URL = re.compile(r"(?:https?|git|ssh|file)://[!-~]+")
_USER = re.compile(r"(?<=://)[^/\s@]*@")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@+=#-]*")
_MOST_URL = 2000
_MOST_REVISION = 250

_SCRIPT = f"""
set -u
target=$1 url=$2 branch=$3 ref=$4
[ -e "$target" ] && exit 0
command -v git > /dev/null || {{ echo "there is no git in this image" >&2; exit 127; }}
rm -rf {WORKSPACE}/.{_MARK}.*
here={WORKSPACE}/.{_MARK}.$$
if [ -n "$branch" ]; then git clone --quiet --branch "$branch" -- "$url" "$here"
else git clone --quiet -- "$url" "$here"; fi || {{ code=$?; rm -rf "$here"; exit $code; }}
if [ -n "$ref" ]; then
    git -C "$here" cat-file -e "$ref^{{commit}}" 2> /dev/null || {{
        git -C "$here" fetch --quiet origin "$ref" && ref=FETCH_HEAD; }} || {{ rm -rf "$here"; exit 1; }}
    if [ -n "$branch" ]; then git -C "$here" checkout --quiet -B "$branch" "$ref"
    else git -C "$here" checkout --quiet --detach "$ref"; fi || {{ rm -rf "$here"; exit 1; }}
fi
[ -e "$target" ] || mv "$here" "$target"
"""


def check_repo(repo: Repo) -> Repo:
    """Return the repository; raise ``BadInput`` if it cannot be one, or names a secret."""
    if len(repo.url) > _MOST_URL or not _URL.fullmatch(repo.url):
        raise BadInput("repo.url: must be https://…, http://…, git://…, ssh://… or file:///…")
    user = _USER.search(repo.url)
    if user is not None and (":" in user[0] or repo.url.startswith("http")):
        raise BadInput("repo.url: must hold no user or password; what a sandbox knows is no secret")
    for name, value in (("branch", repo.branch), ("ref", repo.ref)):
        if value is not None and (len(value) > _MOST_REVISION or not _REVISION.fullmatch(value)):
            raise BadInput(f"repo.{name}: must be the name of a branch, a tag or a commit")
    name_of(repo)
    return repo


def name_of(repo: Repo) -> str:
    """Return the directory's name: the last part of the URL, as git itself has it."""
    path = re.split(r"[?#]", repo.url.split("://", 1)[1])[0].rstrip("/").removesuffix("/.git").removesuffix(".git")
    _host, slash, rest = path.partition("/")
    name = re.sub(r"[^A-Za-z0-9._-]", "-", rest.rsplit("/", 1)[-1]).lstrip(".-")
    if not slash or not name:
        raise BadInput("repo.url: must end in the name of a repository")
    return name


def directory_of(repo: Repo) -> str:
    return f"{WORKSPACE}/{name_of(repo)}"


async def clone(
    processes: Processes, session_id: str, repo: Repo, environment: Mapping[str, str], *, seconds: float
) -> None:
    """Make sure that the repository is there. Raises ``RepoFailed``. What is there already is left as it is."""
    try:
        async with asyncio.timeout(seconds):
            view = await _wait_for_end(processes, session_id, await _start(processes, session_id, repo, environment))
    except TimeoutError:
        await _stop(processes, session_id)
        raise RepoFailed(f"cloning {shown(repo.url)} took longer than {seconds:g} s, and was ended") from None
    if view.exit_code == 0:
        await forget(processes, session_id, view.process_id)
        return
    line = await _complaint(processes, session_id, view)
    await forget(processes, session_id, view.process_id)
    raise RepoFailed(f"{shown(repo.url)} could not be cloned: {line or f'git ended with {view.exit_code}'}")


async def _start(processes: Processes, session_id: str, repo: Repo, environment: Mapping[str, str]) -> ProcessView:
    """Start to clone. A clone that an earlier daemon has left running ends first: it may be all that is needed."""
    for view in await processes.list(session_id):
        if view.running and _MARK in view.cmd:
            log.info("repo.clone.waits", session_id=session_id, process_id=view.process_id)
            await _wait_for_end(processes, session_id, view)
            await forget(processes, session_id, view.process_id)
    request = ProcessRequest(
        argv=["/bin/sh", "-c", _SCRIPT, _MARK, directory_of(repo), repo.url, repo.branch or "", repo.ref or ""],
        env={**environment, "GIT_TERMINAL_PROMPT": "0"},
        cwd=WORKSPACE,
    )
    return await processes.start(session_id, request, idempotency_key=None)


async def _wait_for_end(processes: Processes, session_id: str, view: ProcessView) -> ProcessView:
    while view.running:
        view = await processes.get(session_id, view.process_id, wait_ms=_WAIT_MS)
    return view


async def _stop(processes: Processes, session_id: str) -> None:
    for view in await processes.list(session_id):
        if view.running and _MARK in view.cmd:
            await forget(processes, session_id, view.process_id)


async def forget(processes: Processes, session_id: str, process_id: str) -> None:
    """Remove a process, with what it has said. One that is not there is fine."""
    try:
        await processes.remove(session_id, process_id)
    except ProcessNotFound:
        return


async def _complaint(processes: Processes, session_id: str, view: ProcessView) -> str:
    start = max(view.written - _TAIL_BYTES, 0)
    chunks, _ = await processes.read(session_id, view.process_id, offset=start, limit=_TAIL_BYTES)
    return complaint_of(b"".join(chunk.data for chunk in chunks).decode(errors="replace"))


def complaint_of(text: str) -> str:
    """Return what git said was wrong: the first such line, or its last one, without anything that may be a secret.

    What the server said, or the broker in its place, stands before that and says more.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("fatal:", "error:"))][:1]
    remarks = [line.removeprefix("remote:").strip() for line in lines if line.startswith("remote:")][-1:]
    return "; ".join(shown(line)[:_MOST_LINE] for line in [*remarks, *errors] or lines[-1:])


def shown(text: str) -> str:
    """Return the text without users and passwords in URLs."""
    return _USER.sub("", text)
