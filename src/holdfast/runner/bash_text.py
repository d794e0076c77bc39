"""What we say to bash, as text.

A command never travels on a descriptor that it could read or forge. Bash runs interactively, without a terminal,
and reads its own input from a pipe. For each command it gets one line there, which

    1. sources the command's file, with its stdin, stdout and stderr opened by path just for this one;
    2. opens the result pipe by path and writes the exit status and the directory into it;
    3. in a fork, writes all state (variables, functions, options …) into the state pipe;

and an empty line, which stays unread until all that is done. So while the command runs, the shell holds no control
descriptor but the far end of its input, which carries nothing secret and is not inherited. Being interactive is what
lets an interrupt abandon the line and keep the shell with all its state. Every word of ours is quoted or prefixed with
``builtin``, so that aliases and functions of the same names do not catch it. Between commands the shell's own
stdout and stderr are ``/dev/null``: prompts, traces and hooks go there.
"""

from __future__ import annotations

ABORT_SIGNAL_NAME = "RTMAX-3"
"""Sent to the shell on a timeout. A trap runs only after the foreground child has ended and before the next command
starts, so ``sleep 60; rm x`` is cut off exactly there, whatever the child did with its own signals."""

PROLOGUE = (
    rf"\builtin trap '\builtin kill -INT $$' {ABORT_SIGNAL_NAME}; "
    r"\builtin set +o history +H; \builtin unset HISTFILE" + "\n"
)

_RECORD = r"""\builtin printf '%s\0%s\0' "$__hf" "$PWD" """

_DUMP = "; ".join(
    (
        r"\builtin declare -p",
        r"\builtin printf '\0'",
        r"\builtin declare -f",
        r"\builtin printf '\0'",
        r"\builtin alias -p",
        r"\builtin umask -p",
        r"\builtin printf '\0'",
        r"\builtin shopt -p",
        r"\builtin printf '\0'",
        r"\builtin set +o",
        r"\builtin trap -p",
        r"\builtin printf '\0'",
    )
)

STATE_SECTIONS = 5
"""How many NUL-terminated sections follow the record in a dump."""


def quote(text: str) -> str:
    """``text`` as one shell word."""
    return "'" + text.replace("'", "'\\''") + "'"


def command_lines(directory: str, env: dict[str, str], cwd: str | None, return_to: str) -> str:
    """All that bash reads for one command; the command itself is in ``directory/cmd``.

    The empty redirection at the start leaves a file behind that says "begun": a shell that never gets there may be
    replaced, and the command given to the next one, without running it twice.
    """
    assignments = "".join(f"{name}={quote(value)} " for name, value in env.items())
    go = f"\\builtin cd -- {quote(cwd)} && " if cwd is not None else ""
    back = f"\\builtin cd -- {quote(return_to)}; " if cwd is not None else ""
    return (
        f">|{directory}/begun; "
        f"{go}{assignments}\\. {directory}/cmd <{directory}/in >{directory}/out 2>{directory}/err; "
        f"__hf=$?; {back}{_RECORD}>|{directory}/result; "
        f'( {_RECORD}; {_DUMP}; \\builtin exit "$__hf" ) >|{directory}/state && [[ 1 ]]\n\n'
    )


def report_again(directory: str, back: str | None) -> str:
    """Ask a shell whose line was abandoned, by an interrupt, for the report that it did not get to."""
    go = f"\\builtin cd -- {quote(back)}; " if back is not None else ""
    return f"__hf=$?; {go}( {_RECORD}; {_DUMP} ) >|{directory}/state\n\n"


def report_past_shadows(directory: str) -> str:
    """The report of a shell whose ``builtin`` is a function: POSIX mode finds ``unset`` before any function."""
    past = r"POSIXLY_CORRECT=1; \unset -f builtin; \unset POSIXLY_CORRECT"
    return f"( {past}; {_RECORD}; {_DUMP} ) >|{directory}/state\n\n"


def restore_script(state: bytes, cwd: str) -> bytes:
    """A file to source in a new shell so that it goes on where the old one was last seen.

    Options come before functions, which may need them to parse (extglob), and what can end a shell comes last.
    What bash itself refuses (read-only internals such as UID) it refuses one by one, without harm. Prompt hooks
    and the idle timeout are left out: they would end or stall the new shell as they did the old.
    """
    sections = state.split(b"\0")
    variables, functions, aliases, shopts, options = sections[:STATE_SECTIONS]
    return b"\n".join(
        (
            shopts,
            f"\\builtin cd -- {quote(cwd)}".encode(),
            variables,
            rb"\builtin unset PROMPT_COMMAND PS0 TMOUT POSIXLY_CORRECT",
            functions,
            rb"\unset -f . builtin",
            aliases,
            options,
            b"",
        )
    )
