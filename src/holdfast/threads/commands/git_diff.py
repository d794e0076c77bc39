"""What has changed in a directory of a sandbox since its last commit, as git there tells it; new files included.

Nothing of the repository is touched: git is given a copy of its index, as old as that is: by its age git knows which
files may have been changed in the same second without its noticing. Where the directory is no repository itself,
those right below it are looked at, as an agent that has cloned something leaves them. Files that came with messages
are left out: they are the user's own, and no work of the agent's.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.agents.base import Place
from holdfast.errors import Unavailable, WrongState
from holdfast.protocol.messages import STDOUT
from holdfast.sessions.use.processes import ProcessRequest, ProcessView
from holdfast.threads.resolve.repos import forget
from holdfast.vocabulary.thread_files import UPLOAD_ID, UPLOADS

MAX_BYTES = 1_000_000
"""Of a diff; what is longer is cut."""
_WAIT_MS = 60_000
_NO_GIT, _NO_REPOSITORY = 91, 92

_SCRIPT: Final = f"""
command -v git >/dev/null 2>&1 || exit {_NO_GIT}
export GIT_OPTIONAL_LOCKS=0 GIT_PAGER=cat GIT_CONFIG_COUNT=2 \
  GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' GIT_CONFIG_KEY_1=core.quotePath GIT_CONFIG_VALUE_1=false
one() {{
  local prefix=$2 base index top
  local -a which=()
  cd "$1" || return
  top=$(git rev-parse --show-toplevel) || return
  case {UPLOADS} in
    "$top"/*) which=(":/" ":(exclude,top,glob)$(printf %s {UPLOADS} | cut -c $((${{#top}} + 2))-)/{UPLOAD_ID}*/**") ;;
  esac
  base=$(git rev-parse -q --verify HEAD) || base=$(git hash-object -t tree /dev/null)
  index=$(mktemp) || return
  cp -p "$(git rev-parse --git-path index)" "$index" 2>/dev/null || rm -f "$index"
  GIT_INDEX_FILE=$index git add --intent-to-add --all . "${{which[@]:1}}" 2>/dev/null
  GIT_INDEX_FILE=$index git diff --no-ext-diff --no-textconv --no-color --src-prefix="a/$prefix" \
    --dst-prefix="b/$prefix" "$base" -- "${{which[@]}}"
  rm -f "$index"
}}
all() {{
  if [ "$(git rev-parse --is-inside-work-tree 2>/dev/null)" = true ]; then one "$PWD" ""; return; fi
  for name in */.git; do
    if [ -e "$name" ]; then (one "$PWD/${{name%/.git}}" "${{name%.git}}"); found=1; fi
  done
  [ -n "${{found:-}}" ] || exit {_NO_REPOSITORY}
}}
set -o pipefail
all | head -c {MAX_BYTES + 1}
code=$?
[ $code = 141 ] && code=0
exit $code
"""


@dataclass(frozen=True, slots=True)
class Diff:
    """``source`` is ``agent`` (what a turn has changed) or ``git`` (what differs from the last commit)."""

    text: str
    source: str
    truncated: bool = False


async def git_diff(place: Place) -> Diff:
    """Ask git in the sandbox. Raises ``WrongState`` where there is nothing to compare with."""
    directory = place.brief.workdir
    processes = place.sandbox.processes
    request = ProcessRequest(cmd=_SCRIPT, cwd=directory)
    started = await processes.start(place.session_id, request, idempotency_key=None)
    try:
        view = await processes.get(place.session_id, started.process_id, wait_ms=_WAIT_MS)
        _check(view, directory)
        chunks, _ = await processes.read(place.session_id, view.process_id, offset=0, limit=view.written)
    finally:
        await forget(processes, place.session_id, started.process_id)
    return cut(b"".join(chunk.data for chunk in chunks if chunk.stream == STDOUT), "git")


def _check(view: ProcessView, directory: str) -> None:
    if view.running:
        raise Unavailable(f"git did not tell within {_WAIT_MS // 1000} s what has changed in {directory}; try again")
    if view.exit_code == _NO_GIT:
        raise WrongState("there is no git in this sandbox's image, so nobody knows what has changed")
    if view.exit_code == _NO_REPOSITORY:
        raise WrongState(
            f"{directory} is no git repository, so there is nothing to compare with; have the agent make one (to the "
            "demo model that is the message `run git init`), or make a new thread with a repository (options.repo)"
        )
    if view.exit_code != 0:
        raise WrongState(f"git could not tell what has changed in {directory} (exit code {view.exit_code})")


def cut(data: bytes, source: str) -> Diff:
    """Return it as text of whole lines, not longer than it may be."""
    truncated = len(data) > MAX_BYTES
    if truncated:
        data = data[:MAX_BYTES].rpartition(b"\n")[0] + b"\n"
    return Diff(data.decode(errors="replace"), source, truncated)
