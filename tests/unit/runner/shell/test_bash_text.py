"""What is said to bash, checked with a real bash: words stay words, and a reported state can be rebuilt."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.runner.shell.bash_text import STATE_SECTIONS, State, quote

BASH = shutil.which("bash") or "/bin/bash"
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)


def dump(
    variables: str = "", functions: str = "", aliases: str = "", shopts: str = "", options: str = "", traps: str = ""
) -> bytes:
    """A report as a shell writes it."""
    return b"".join(part.encode() + b"\0" for part in (variables, functions, aliases, shopts, f"{options}\n{traps}"))


def state(*, builtin_is_hidden: bool = False, **sections: str) -> State:
    return State(dump(**sections), builtin_is_hidden=builtin_is_hidden)


@settings(max_examples=30, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=20))
def test_a_quoted_word_stays_one_word(words: list[str]) -> None:
    script = "printf '%s\\0' " + " ".join(quote(word) for word in words)
    done = subprocess.run([BASH, "--norc", "-c", script], capture_output=True, check=True)
    assert done.stdout.split(b"\0")[:-1] == [word.encode() for word in words]


def test_a_report_has_its_sections() -> None:
    assert dump().count(b"\0") == STATE_SECTIONS
    with pytest.raises(ValueError, match="unpack"):
        State(b"cut\0off", builtin_is_hidden=False)


def test_a_shell_that_ends_itself_is_known() -> None:
    assert state(variables='declare -- TMOUT="5"\n').idle_timeout
    assert state(variables='declare -x TMOUT="5"\n').idle_timeout
    assert not state(variables='declare -- MYTMOUT="5"\n').idle_timeout


@pytest.mark.parametrize(
    ("functions", "way"),
    [
        ("", r"\. "),
        ("f () \n{ \n    true\n}\n", r"\. "),
        (". () \n{ \n    true\n}\n", r"\builtin . "),
        (". () \n{ \n    true\n}\nbuiltin () \n{ \n    true\n}\n", r"\command . "),
    ],
    ids=["none", "other", "dot", "dot-and-builtin"],
)
def test_shadowed_words_are_avoided(functions: str, way: str) -> None:
    assert way in state(functions=functions).source_command()


def test_traps_need_another_way() -> None:
    assert "eval" in state(traps="trap -- 'echo x' DEBUG\n").source_command()
    assert "eval" in state(traps="trap -- 'echo x' RETURN\n").source_command()
    assert "eval" not in state(traps="trap -- 'echo x' EXIT\n").source_command()


def test_what_would_stall_the_next_shell_is_left_out() -> None:
    script = state(options="errexit:onecmd:pipefail").restore_script("/", {})
    assert b"-o errexit -o pipefail" in script
    assert b"onecmd" not in script
    assert b"unset PROMPT_COMMAND PS0 TMOUT" in script


REPORT = r"""
declare -p; printf '\0'; declare -f; printf '\0'; alias -p; umask -p; printf '\0'
printf '%s\0%s\n' "$BASHOPTS" "$SHELLOPTS"; trap -p; printf '\0'
"""


def test_a_rebuilt_shell_goes_on_where_the_old_one_was(tmp_path: Path) -> None:
    """The whole way: a real shell's state, its report, and a new shell that sources what we made of it."""
    (tmp_path / "it's a dir").mkdir()
    set_up = r"""
    export EXPORTED="a b
    c"; PLAIN='quote"s $x'; ARRAY=(one "two three" [7]=seven); declare -A MAP=([k 1]=v); declare -i NUM=5
    f() { echo "f:$1"; }; shopt -s extglob expand_aliases; alias ll='ls -l'; umask 027; set -o pipefail
    g() { case $1 in +(a|b)) echo matched;; esac; }; trap 'echo bye' USR1; unset GONE
    """
    environment = {"PATH": "/usr/bin:/bin", "GONE": "was here", "HOME": "/"}
    cwd = str(tmp_path / "it's a dir")
    command = [BASH, "--norc", "-c", set_up.replace("; ", ";\n") + REPORT]
    first = subprocess.run(command, capture_output=True, env=environment, cwd=cwd, check=True)
    script = tmp_path / "restore"
    script.write_bytes(State(first.stdout, builtin_is_hidden=False).restore_script(cwd, environment))
    check = (
        f". {quote(str(script))} 2>/dev/null\n"
        'echo "$PWD|$EXPORTED|$PLAIN|${ARRAY[1]}|${ARRAY[7]}|${MAP[k 1]}|$((NUM + 1))|${GONE-unset}"\n'
        "f x; g ab; umask; shopt -q extglob && echo extglob; set -o | grep pipefail\n"
        "env | grep -c ^EXPORTED=; alias ll\n"
        "trap -p USR1\n"
    )
    second = subprocess.run([BASH, "--norc", "-c", check], capture_output=True, env=environment, text=True, check=True)
    assert second.stderr == ""
    head, _, rest = second.stdout.partition("|unset\n")
    assert head == f'{cwd}|a b\n    c|quote"s $x|two three|seven|v|6'
    assert rest.split("\n")[:4] == ["f:x", "matched", "0027", "extglob"]
    assert "pipefail" in rest and "on" in rest.split("\n")[4]
    assert "alias ll='ls -l'" in rest and "trap -- 'echo bye' SIGUSR1" in rest


def names(command: str) -> list[str]:
    """Every option that this bash knows."""
    lines = subprocess.run([BASH, "--norc", "-c", command], capture_output=True, text=True, check=True).stdout
    return [line.split()[-1] for line in lines.splitlines()]


FIXED = {"login_shell", "restricted_shell", "noexec", "onecmd", "privileged", "history", "interactive-comments"}
"""Cannot be changed, or would keep the rest of the script from running; the last is ``interactive_comments`` again."""
SHOPTS = sorted(set(names("shopt -p")) - FIXED)
OPTIONS = sorted(set(names("set +o")) - FIXED - {"posix", "emacs", "vi", "verbose", "xtrace"})


@settings(max_examples=25, deadline=None)
@given(st.sets(st.sampled_from(SHOPTS)), st.sets(st.sampled_from(OPTIONS)))
def test_every_option_is_as_it_was(on: set[str], set_on: set[str]) -> None:
    """Whatever was on is on again, and what a new shell has on by itself is off again if it was off."""
    flags = [f"{'-' if name in set_on else '+'}o {name}" for name in OPTIONS]
    before = f"shopt -u {' '.join(SHOPTS)}\nshopt -s expand_aliases {' '.join(sorted(on))}\nset {' '.join(flags)}\n"
    show = "\nshopt -p; set +o"
    script = State(output_of(before + REPORT), builtin_is_hidden=False).restore_script("/", {})
    assert output_of(script.decode() + show) == output_of(before + show)


def output_of(script: str) -> bytes:
    """Whatever its exit status: with ``errexit`` on, a bash may well end early."""
    return subprocess.run([BASH, "--norc", "-c", script], capture_output=True, check=False).stdout
