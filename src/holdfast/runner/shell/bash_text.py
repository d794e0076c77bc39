"""The text that we give to bash.

A command never travels on a descriptor that it could read or forge. Bash runs interactively, without a terminal,
and reads its own input from a pipe. For each command it gets one line there, which

    1. sources the command's file, with its stdin, stdout and stderr opened by path just for this one, and on the way
       empties a file, which tells that the command has begun;
    2. opens the result pipe by path and writes the exit status and the directory into it;
    3. opens the state pipe by path and writes all its state (variables, functions, options …) into it.

So while the command runs, the shell holds no control descriptor but the far end of its input, which carries nothing
secret and is not inherited. Being interactive is what lets an interrupt abandon the line and keep the shell with all
its state. Every word of ours is quoted or prefixed with ``builtin``, so that aliases and functions of the same names
do not catch it. Between commands the shell's own stdout and stderr are ``/dev/null``: prompts, traces and hooks go
there.
"""

from __future__ import annotations

ABORT_SIGNAL_NAME = "RTMAX-3"
"""Sent to the shell on a timeout. A trap runs only after the foreground child has ended and before the next command
starts, so ``sleep 60; rm x`` is cut off exactly there, whatever the child did with its own signals."""

PROLOGUE = (
    rf"\builtin trap '\builtin kill -INT $$' {ABORT_SIGNAL_NAME}; "
    r"\builtin set +o history +H; \builtin unset HISTFILE" + "\n"
)

_RECORD = r"""\builtin printf '%s\0%s\0%s\0' {token} "$__hf" "$PWD" """

DUMP = "; ".join(
    (
        r"\builtin declare -p",
        r"\builtin printf '\0'",
        r"\builtin declare -f",
        r"\builtin printf '\0'",
        r"\builtin alias -p",
        r"\builtin umask -p",
        r"\builtin printf '\0'",
        r"""\builtin printf '%s\0%s\n' "$BASHOPTS" "$SHELLOPTS" """,  # of 80 options, those that are on
        r"\builtin trap -p",
        r"\builtin enable -n",
        r"\builtin printf '\0'",
    )
)

_ENABLE = r"\enable unset builtin printf declare alias umask shopt set trap exit >/dev/null"

_POSIX_RESETS = (b"expand_aliases", b"shift_verbose", b"sourcepath")
"""What bash changes when it is told to leave POSIX mode, even if it was not in it."""

STATE_SECTIONS = 5
"""How many NUL-terminated sections follow the record in a dump."""


def quote(text: str) -> str:
    """``text`` as one shell word."""
    return "'" + text.replace("'", "'\\''") + "'"


class State:
    """What a shell reported of itself: enough to rebuild it, and to know which of our words it has bent."""

    def __init__(self, dump: bytes, *, builtin_is_hidden: bool) -> None:
        self.dump = dump
        self.builtin_is_hidden = builtin_is_hidden
        sections = dump.split(b"\0")
        self._variables, self._functions, self._aliases, shopts, rest = sections[:STATE_SECTIONS]
        options, _, self._traps = rest.partition(b"\n")
        self._shopts, self._options = shopts.split(b":"), options.split(b":")
        self._function_names = {
            line[:-4].decode("utf-8", "replace") for line in self._functions.split(b"\n") if line.endswith(b" () ")
        }
        self.ends_on_failure = b"errexit" in self._options
        """Whether a failing word of ours would end the shell."""
        self.has_debug_trap = b" DEBUG\n" in self._traps
        """Whether every word in this shell, ours too, runs a trap first."""
        self.idle_timeout = b" TMOUT=" in self._variables
        """Whether bash would end itself when nobody talks to it."""
        if builtin_is_hidden:  # the report had to remove that function to come about
            self._function_names.add("builtin")

    @property
    def bends_groups(self) -> bool:
        """Whether a group in braces cannot be trusted: a trap would write into it, or a brace is an alias."""
        return self.has_debug_trap or b"alias {=" in self._aliases or b"alias }=" in self._aliases

    @property
    def has_prompt_hook(self) -> bool:
        """Whether bash runs something of the user's before it reads our next line."""
        start = self._variables.find(b" PS1=")
        prompt = self._variables[start : self._variables.find(b"\ndeclare -", start)] if start >= 0 else b""
        hooks = b" PROMPT_COMMAND=" in self._variables or b" PS0=" in self._variables
        return hooks or b"$(" in prompt or b"`" in prompt

    def has_function(self, name: str) -> bool:
        return name in self._function_names

    def source_command(self) -> str:
        """Return how to run the text of a file in this shell.

        Sourcing is best: it stays silent about background jobs. But it hides DEBUG and RETURN traps, which then need
        ``eval``; and either may be a function by now.
        """
        if self.has_debug_trap or b" RETURN\n" in self._traps:
            return r"""\builtin mapfile -d '' __hf_cmd <{directory}/cmd; {env}\builtin eval "${__hf_cmd[0]}" """
        if b"enable -n .\n" in self._traps:
            return r"\builtin enable .; {env}\builtin . {directory}/cmd "
        if "." not in self._function_names:
            return r"{env}\. {directory}/cmd "
        if "builtin" not in self._function_names:
            return r"{env}\builtin . {directory}/cmd "
        if "command" not in self._function_names:
            return r"{env}\command . {directory}/cmd "
        return r"POSIXLY_CORRECT=1; \unset -f builtin; \unset POSIXLY_CORRECT; {env}\builtin . {directory}/cmd "

    def restore_script(self, cwd: str, environment: dict[str, str]) -> bytes:
        """Return a file to source in a new shell so that it goes on where the old one was last seen.

        Options come before functions, which may need them to parse (extglob), and what can end a shell comes last.
        What bash itself refuses (read-only internals such as UID) it refuses one by one, without harm. Prompt hooks
        and the idle timeout are left out: they would end or stall the new shell as they did the old.
        """
        gone = [name for name in environment if name.encode() not in self._variable_names()]
        options = [b"-o " + name for name in self._options if name not in (b"", b"onecmd")]
        return b"\n".join(
            (
                rb"\builtin shopt -u ${BASHOPTS//:/ }; \builtin shopt -s " + b" ".join(self._shopts),
                rb"\builtin set +o ${SHELLOPTS//:/ +o }",  # after those: extdebug switches some of these on
                f"\\builtin cd -- {quote(cwd)}".encode("utf-8", "surrogateescape"),
                f"\\builtin unset {' '.join(gone)}".encode() if gone else b"",
                self._variables,
                f"PWD={quote(cwd)}".encode("utf-8", "surrogateescape"),
                rb"\builtin unset PROMPT_COMMAND PS0 TMOUT POSIXLY_CORRECT; PS1='\s-\v\$ '",
                *[rb"\builtin shopt -%s %s" % (b"s" if name in self._shopts else b"u", name) for name in _POSIX_RESETS],
                self._functions,
                rb"\unset -f . builtin",
                self._aliases,
                rb"\builtin set " + b" ".join(options) if options else b"",
                self._traps,
                b"",
            )
        )

    def _variable_names(self) -> set[bytes]:
        lines = [line for line in self._variables.split(b"\n") if line.startswith(b"declare -")]
        return {line.split(b" ", 2)[-1].split(b"=", 1)[0] for line in lines}


def command_line(
    directory: str,
    token: str,
    stdin: str,
    env: dict[str, str],
    cwd: str | None,
    return_to: str,
    state: State | None,
    *,
    recall: bool,
    first: str = "",
    after: str = "",
) -> str:
    """Return all that bash reads for one command; the command itself is in ``directory/cmd``.

    ``token`` goes in front of the record: who does not know it cannot forge one. ``recall`` sources
    ``directory/status`` first, which sets ``$?`` to that of the command before. ``first`` and ``after`` are words of
    ours that go before all else and right behind the command.
    """
    assignments = "".join([f"{name}={quote(value)} " for name, value in env.items()])
    template = state.source_command() if state is not None else r"{env}\. {directory}/cmd "
    run = template.replace("{directory}", directory).replace("{env}", assignments)
    go = f"\\builtin cd -- {quote(cwd)} && " if cwd is not None else ""
    back = f"\\builtin cd -- {quote(return_to)}; " if cwd is not None else ""
    remember = f"\\. {directory}/status; " if recall else ""
    record = _RECORD.replace("{token}", token)
    report = _report(directory, token, in_fork=state is not None and state.bends_groups)
    return (
        f"__hf= __hf_at={directory}; {first}{go}{remember}"
        f"{run}<{stdin} >{directory}/out 2>|{directory}/begun 2>{directory}/err; "
        f"__hf=$? __hf_at=; {after}{back}{record}>|{directory}/result; {report}\n"
    )


def _report(directory: str, token: str, *, in_fork: bool, first: str = "") -> str:
    """The report, without a fork, which costs half as much as a short command, except where a trap would write into it.

    The ``||`` keeps ``set -e`` from taking a word of ours for a failure of the user's; an assignment is the one
    thing that no alias and no function can catch.
    """
    words = f"{first}{_RECORD}; {DUMP};".replace("{token}", token)
    group = f"( {words} )" if in_fork else f"{{ {words} }}"
    return f"{group} >|{directory}/state || __hf=$__hf"


def report_again(directory: str, token: str, back: str | None, after: str = "") -> str:
    """Ask a shell whose line was abandoned, by an interrupt, for the report that it did not get to."""
    go = f"\\builtin cd -- {quote(back)}; " if back is not None else ""
    return f"__hf=${{__hf:-$?}}; {after}{go}{_report(directory, token, in_fork=True)}\n"


def report_past_shadows(directory: str, token: str) -> str:
    """The report of a shell whose builtins are disabled or hidden: POSIX mode finds ``unset`` before any function."""
    past = rf"{_ENABLE}; POSIXLY_CORRECT=1; \unset -f builtin enable; \unset POSIXLY_CORRECT; {_ENABLE}"
    return _report(directory, token, in_fork=True, first=f"{past}; ") + "\n"


LAST_WORDS = r"""\builtin exit "$__hf" """ + "\n"
"""For a shell that cannot redirect any more (``set -r``): its exit status still tells how the command ended."""
