"""What a shell leaves behind when it ends: an EXIT trap of ours, which writes its state into a file.

``exit``, a failure under ``set -e`` or an unset variable under ``set -u`` ends the shell in the middle of a command,
and with it go the directory, variables and functions that the command had set. The trap runs before all else that
happens then; what the user has set for EXIT stands behind it in the same trap, and runs as it would alone.

    end     the trap's beginning, which is not traced
    tell    the rest of it: writes the state into ``last``
    keep    puts the trap in front of the user's, where that has taken its place
    trap    a function for commands that set an EXIT trap and may end the shell themselves: ``trap``, and then ``keep``
    last    what was written

A shell that is killed, or gives its process to a program (``exec``), runs no trap: then there is no file. Whoever
runs commands in this shell can write such a file, too, and gains nothing by it: it tells of their own shell.
"""

from __future__ import annotations

import os

from holdfast.runner.shell.bash_text import DUMP, STATE_SECTIONS

NAMES = ("end", "tell", "keep", "trap", "last")
LIMIT = 16 << 20
UNDEFINE = r"\builtin unset -f trap"
_MARK = b"end\0"
_PROBE = "27182818"

_END = r"""__hf=$? __hf_x=
case $- in *x*) __hf_x=x; \builtin set +x;; esac
__hf_err=$(\builtin trap -p ERR)
"""

# Under ``set -e`` bash takes the command's streams away before it runs the trap: what the user's part of it writes
# would be lost. So it gets them back.
#
# The rest is in a subshell, so that nothing in it can end the shell otherwise, or change it. Variables that are local
# to functions which have not returned, and those of this command's own environment, hide others that go on living. They
# are found by setting each name where all see it: who does not see the change, or sees a variable after it was unset,
# has looked at another one. To unset that from within one more function uncovers what is behind it, layer by layer.
# An ERR trap is not seen from within a function, nor from a file that is sourced before ``&&``, so ``end`` has asked.
_TELL = r"""if [[ -p /dev/fd/0 && /dev/fd/1 -ef /dev/null && -p ${__hf_at-}/out ]]; then
\exec </dev/null 1<>"$__hf_at/out" 2<>"$__hf_at/err"
fi
( __hf_tell() {
\builtin unset -f __hf_tell
case "$(\builtin declare -f trap)" in *DIRECTORY/keep*) \builtin unset -f trap;; esac
case $__hf_x in x) \builtin set -x;; esac
__hf_before=
for __hf_round in 1 2 3 4 5 6 7 8; do
\builtin mapfile -t __hf_names <<<"$(\builtin compgen -v)"
\builtin mapfile -t __hf_hiding <<<"$(for __hf_name in "${__hf_names[@]}"; do
case $__hf_name in __hf*|_|BASH*|FUNCNAME|PIPESTATUS|SHELLOPTS|EUID|PPID|UID) continue;; esac
\builtin declare -g "$__hf_name=PROBE"
if [[ ${!__hf_name-} == PROBE ]]; then
\builtin unset -v "$__hf_name"
\builtin declare -p "$__hf_name" >/dev/null || continue
fi
\builtin printf '%s\n' "$__hf_name"
done)"
[[ ${__hf_hiding[*]} && ${__hf_hiding[*]} != "$__hf_before" ]] || break
__hf_before="${__hf_hiding[*]}"
\builtin unset -v "${__hf_hiding[@]}"
done
\builtin set -- "$__hf_err"
\builtin unset -v __hf_at __hf_x __hf_err __hf_before __hf_round __hf_names __hf_name __hf_hiding
\builtin printf 'end\0%s\0' "$PWD"
DUMP
}; __hf_tell ) </dev/null >|DIRECTORY/last 2>/dev/null || __hf=$__hf
case $__hf_x in x) { \builtin set -x; \return $__hf; } 2>/dev/null;; esac
\return $__hf
"""

_KEEP = r"""__hf_keep=$(\builtin trap -p EXIT)
case $__hf_keep in
"trap -- '"*"CALL"*) ;;
"trap -- '"*) \builtin eval "\\builtin trap -- 'CALL; ${__hf_keep#"trap -- '"}";;
*) \builtin trap 'CALL' EXIT;;
esac
\builtin unset -v __hf_keep
"""

_TRAP = r"""trap() {
{ \builtin set -- "$-" "$@"; \builtin set +x; } 2>/dev/null
\builtin trap "${@:2}"
{ \builtin set -- $? "$1"
[[ $BASH_SUBSHELL != 0 ]] || \. DIRECTORY/keep
case $2 in *x*) \builtin set -x;; esac
\return $1; } 2>/dev/null
}
"""


_DUMP = DUMP.replace(r"\builtin trap -p", r"""\builtin printf '%s\n' "${1-}"; \builtin trap -p""")


def call(directory: str) -> str:
    """Return what stands in the trap; without quotes.

    The group keeps ``set -x`` from showing what is ours, and the empty command our status from being a failure to
    ``set -e``.
    """
    return f"{{ \\. {directory}/end; }} 2>/dev/null; \\. {directory}/tell && :"


def keep(directory: str) -> str:
    """Words that put the trap in its place, whether or not the user has one."""
    return f"\\. {directory}/keep || __hf=$__hf"


def define(directory: str) -> str:
    """Words that make the function; ``UNDEFINE`` takes it away."""
    return f"\\. {directory}/trap || __hf=$__hf"


def write(directory: str) -> None:
    """Write the files that the trap and the rest consist of. A shell without them works, but its end is silent."""
    texts = {
        "end": _END,
        "tell": _TELL.replace("DIRECTORY", directory).replace("PROBE", _PROBE).replace("DUMP", _DUMP),
        "keep": _KEEP.replace("CALL", call(directory)),
        "trap": _TRAP.replace("DIRECTORY", directory),
    }
    try:
        for name, text in texts.items():
            replace(f"{directory}/{name}", text.encode())
    except OSError:
        return  # a command has been at our directory


def replace(path: str, data: bytes) -> None:
    """Write a new file in the place of what is there, which is a command's to choose: a pipe would hold us up."""
    if os.path.lexists(path):
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)


def split(dump: bytes, directory: str) -> tuple[bytes, bool]:
    """Return a shell's state as if our trap was not there, and whether it was."""
    ours = b"trap -- '" + call(directory).encode()
    alone, before = ours + b"' EXIT\n", ours + b"; "
    if alone in dump:
        return dump.replace(alone, b"", 1), True
    return dump.replace(before, b"trap -- '", 1), before in dump


def needs_function(cmd: bytes) -> bool:
    """Whether a command may set an EXIT trap, and is none of those in which a function named ``trap`` would show."""
    return (
        b"trap" in cmd
        and (b"EXIT" in cmd or b" 0" in cmd)
        and not any(word in cmd for word in (b"RETURN", b"trap()", b"trap ()", b"function trap"))
    )


def take(directory: str) -> tuple[str, bytes] | None:
    """Return the directory and the state in which a shell has ended, if it could tell. They are told once."""
    path = f"{directory}/last"
    try:
        # Not by its descriptor: that of a directory would stay open, and there can be one at each end of a shell.
        with open(path, "rb", opener=_open_quickly) as file:
            data = file.read(LIMIT + 1) or b""
        os.unlink(path)
    except OSError:
        return None
    if len(data) > LIMIT or not data.startswith(_MARK):
        return None
    cwd, _, dump = data[len(_MARK) :].partition(b"\0")
    if dump.count(b"\0") != STATE_SECTIONS or not dump.endswith(b"\0"):
        return None
    return os.fsdecode(cwd), dump


def _open_quickly(path: str, _flags: int) -> int:
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
