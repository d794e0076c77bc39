"""The command line, run in this process against the real API."""

import asyncio
import itertools
import json
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import ModuleType

import click
import pytest

from holdfast.cli import common
from holdfast.cli.main import VERBS, run
from holdfast.cli.main import cli as cli_group
from holdfast.cli.sessions import ls
from holdfast.drivers.base import Check
from holdfast.errors import ConfigError, RuntimeUnavailable
from holdfast.sessions.types import ExecRequest
from support.api_host import ApiHost, running_api


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Cli = Callable[..., Ran]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiHost]:
    with running_api() as running:
        monkeypatch.setenv("HOLDFAST_URL", running.url)
        monkeypatch.setenv("HOLDFAST_API_KEY", running.key)
        yield running


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiHost]:
    """With real runners."""
    with running_api(runners=True) as running:
        monkeypatch.setenv("HOLDFAST_URL", running.url)
        monkeypatch.setenv("HOLDFAST_API_KEY", running.key)
        yield running


def home_of(api: ApiHost, session_id: str) -> Path:
    """The working directory of a session with a real runner."""
    return Path(api.run(api.sessions.get(session_id)).cwd)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    def go(*args: str) -> Ran:
        capsys.readouterr()
        code = run(list(args))
        seen = capsys.readouterr()
        return Ran(code, seen.out, seen.err)

    return go


def test_no_verb_has_an_option_twice() -> None:
    """Click warns of it on the user's screen, and one of the two is not heard."""
    looked: list[tuple[click.Context, click.Command]] = [(click.Context(cli_group), cli_group)]
    for context, command in looked:
        options = [name for param in command.get_params(context) for name in (*param.opts, *param.secondary_opts)]
        assert len(options) == len(set(options)), (context.command_path, options)
        if isinstance(command, click.Group):
            verbs = [command.get_command(context, name) for name in command.list_commands(context)]
            looked += [(click.Context(verb, context, verb.name), verb) for verb in verbs if verb is not None]
    assert len(looked) > 40


def test_help_is_fast_and_names_every_verb() -> None:
    def once() -> float:
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-c", "from holdfast.cli.main import main; main(['--help'])"],
            check=True,
            capture_output=True,
            text=True,
        )
        assert all(verb in done.stdout for verb in VERBS)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime

    assert min(once() for _ in range(3)) < 0.5, "seconds of the processor's time"
    loaded = "import sys, holdfast.cli.main as m\nm.run(['--help'])\nprint(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", loaded], check=True, capture_output=True, text=True).stdout.split()
    assert not {"httpx2", "rich", "pydantic", "fastapi", "asyncio", "prompt_toolkit"} & set(modules)


def test_new_ls_rm(cli: Cli, api: ApiHost) -> None:
    made = cli("new", "--ttl", "60", "-e", "A=b=c", "--meta", "k=v", "--memory-mb", "64")
    assert made.code == 0
    one = made.out.strip()
    assert api.run(api.sessions.get(one)).metadata == {"k": "v"}
    two = json.loads(cli("new", "--json").out)["id"]
    listed = cli("ls").out.splitlines()
    assert listed[0].startswith("ID\tSTATUS")
    assert [line.split("\t")[0] for line in listed[1:]] == [two, one]
    assert [entry["id"] for entry in json.loads(cli("--json", "ls").out)["sessions"]] == [two, one]
    assert cli("rm", one).out == one + "\n"
    assert len(cli("ls").out.splitlines()) == 2
    assert len(cli("ls", "-a").out.splitlines()) == 3
    assert len(cli("ls", "--status", "destroyed").out.splitlines()) == 2
    assert json.loads(cli("rm", "--all", "--json").out) == {"destroyed": [two]}
    assert cli("rm").code == 2
    assert cli("rm", one, "--all").code == 2
    mixed = cli("rm", "zzz", cli("new").out.strip())
    assert (mixed.code, "there is no session zzz" in mixed.err) == (1, True)
    assert mixed.out.startswith("ses_")


def test_exec(cli: Cli, real: ApiHost, monkeypatch: pytest.MonkeyPatch) -> None:
    one = cli("new").out.strip()
    leaving = "echo leaving >&2; (exit 3)"
    assert cli("exec", one, "--", "echo hi") == Ran(0, "hi\n", "")
    assert cli("exec", one, "--", leaving) == Ran(3, "", "leaving\n")
    asked: list[ExecRequest] = []
    start = real.sessions.commands.start

    async def noted(session_id: str, request: ExecRequest, *, idempotency_key: str | None) -> str:
        asked.append(request)
        return await start(session_id, request, idempotency_key=idempotency_key)

    monkeypatch.setattr(real.sessions.commands, "start", noted)
    cli("exec", one, "--timeout", "1.5", "--cwd", "/tmp", "-e", "A=1", "--", "ls", "-l", "a file")
    assert [(one.cmd, one.timeout_ms, one.cwd, dict(one.env)) for one in asked] == [
        ("ls -l 'a file'", 1500, "/tmp", {"A": "1"})
    ]
    late = cli("exec", one, "--timeout", "0.02", "--", "sleep 5")
    assert (late.code, "timed out" in late.err) == (124, True)
    result = json.loads(cli("exec", "--json", one, "--", leaving).out)
    assert (result["exit_code"], result["stderr"]) == (3, "leaving\n")
    assert cli("exec", one, "--json", "--", "(exit 300)").code == 300 & 0xFF
    assert cli("exec", one).code == 2


def test_exec_says_that_memory_ran_out(cli: Cli, api: ApiHost) -> None:
    one = cli("new", "--memory-mb", "64").out.strip()
    said = "holdfast: the command was killed because the sandbox ran out of memory (limit 64 MB)\n"
    for words in ((), ("--json",)):
        starving = asyncio.run_coroutine_threadsafe(api.starve(one), api.loop)
        shown = cli("exec", *words, one, "--", "sleep 0.2; exit 137")
        starving.result()
        if words:
            assert json.loads(shown.out)["oom_killed"] is True
        else:
            assert shown == Ran(137, "", said)


def test_ls_shows_what_is_used(cli: Cli, api: ApiHost) -> None:
    used, gone = cli("new").out.strip(), cli("new").out.strip()
    api.use(used)
    cli("rm", gone)
    heads, *rows = [line.split("\t") for line in cli("ls", "-a").out.splitlines()]
    assert heads[7:11] == ["CPU", "MEM", "DISK", "PROCS"]
    assert {row[0]: row[7:11] for row in rows} == {
        used: ["1.2s", "50M/512M", "1.5K", "3/256"],
        gone: ["-", "-", "-", "-"],
    }
    [listed] = json.loads(cli("ls", "--json").out)["sessions"]
    assert listed["stats"]["memory_bytes"] == 50 << 20


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (None, None),
        (0, "0B"),
        (999, "999B"),
        (1000, "1.0K"),
        (10 << 20, "10M"),
        (1023 << 20, "1.0G"),
        (1 << 45, "32768G"),
    ],
)
def test_sizes(count: int | None, shown: str | None) -> None:
    assert ls.size(count) == shown


def test_what_is_kept_for_a_thread_never_expires() -> None:
    assert [ls.expiry(timedelta(days=days)) for days in (1, 50 * 365)] == ["1d0h", "never"]


def test_exec_forwards_stdin_only_if_asked(cli: Cli, real: ApiHost, monkeypatch: pytest.MonkeyPatch) -> None:
    one = cli("new").out.strip()
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO("höi".encode())))
    assert cli("exec", one, "--", "cat").out == ""
    assert cli("exec", "-i", one, "--", "cat").out == "höi"
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"\xff")))
    assert cli("exec", "-i", one, "--", "cat").code == 2


def test_ids_may_be_abbreviated(cli: Cli, real: ApiHost, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count(1)
    monkeypatch.setattr("holdfast.sessions.create.planning.new_session_id", lambda *_: f"ses_{next(numbers):08d}")
    for _ in range(2):
        cli("new")
    monkeypatch.setattr("holdfast.sessions.create.planning.new_session_id", lambda *_: "ses_00000010")
    cli("new")
    assert cli("exec", "ses_0000001", "--", "echo x").out == "x\n"
    assert cli("exec", "0010", "--", "echo x").out == "x\n"  # the end of one
    assert "0000001 is the beginning or the end of 2 sessions" in cli("exec", "0000001", "--", "true").err
    assert cli("exec", "10", "--", "true").code == 1, "too short an end"
    vague = cli("exec", "ses_", "--", "true")
    assert (vague.code, "3 sessions" in vague.err) == (1, True)
    missing = cli("exec", "q", "--json", "--", "true")
    assert missing.code == 1
    assert json.loads(missing.err)["error"]["code"] == "session_not_found"


def test_cp(cli: Cli, real: ApiHost, tmp_path: Path) -> None:
    one = cli("new").out.strip()
    home = home_of(real, one)
    source = tmp_path / "a.bin"
    source.write_bytes(b"\0\xff")
    source.chmod(0o750)
    assert cli("cp", str(source), f"{one}:{home}/").code == 0
    assert (home / "a.bin").read_bytes() == b"\0\xff"
    assert (home / "a.bin").stat().st_mode & 0o777 == 0o750
    (tmp_path / "into").mkdir()
    assert cli("cp", f"{one}:{home}/a.bin", str(tmp_path / "into")).code == 0
    assert (tmp_path / "into/a.bin").read_bytes() == b"\0\xff"
    assert json.loads(cli("cp", "--json", f"{one}:{home}/a.bin", str(tmp_path / "b")).out)["bytes"] == 2
    assert cli("cp", "a", "b").code == 2
    assert cli("cp", f"{one}:{home}/nope", str(tmp_path / "c")).code == 1
    assert not (tmp_path / "c").exists()
    gone = cli("cp", str(tmp_path / "missing"), f"{one}:{home}/")
    assert (gone.code, "Traceback" in gone.err, "missing" in gone.err) == (1, False, True)


def test_cp_folders(cli: Cli, real: ApiHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that is a folder, or ends in ``/``, takes the source in; else it is the new name."""
    one, two = cli("new").out.strip(), cli("new").out.strip()
    (tmp_path / "src" / "sub").mkdir(parents=True)
    (tmp_path / "src" / "sub" / "x").write_text("x")
    monkeypatch.chdir(tmp_path)

    first, second = home_of(real, one), home_of(real, two)

    def names(home: Path, top: str) -> list[str]:
        found = (str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())
        return sorted(f"/{name}" for name in found if f"/{name}".startswith(top))

    for target, becomes in (
        ("/new", "/new/sub/x"),
        ("/new", "/new/src/sub/x"),
        ("/slash/", "/slash/src/sub/x"),
    ):
        assert cli("cp", "src", f"{one}:{first}{target}").code == 0
        assert becomes in names(first, target)
    assert cli("cp", "src/.", f"{one}:{first}/new").code == 0
    assert names(first, "/new/s") == ["/new/src/sub/x", "/new/sub/x"]
    assert cli("cp", f"{one}:{first}/new", f"{two}:{second}/copy").code == 0
    assert names(second, "/") == ["/copy/src/sub/x", "/copy/sub/x"]
    (tmp_path / "here").mkdir()
    assert cli("cp", f"{two}:{second}/copy", "here").code == 0
    assert cli("cp", f"{two}:{second}/copy/.", "flat").code == 0
    assert (tmp_path / "here/copy/sub/x").read_text() == (tmp_path / "flat/sub/x").read_text() == "x"
    shown = json.loads(cli("cp", "--json", "src", f"{one}:{first}/counted").out)
    assert (shown["bytes"], shown["target"]) == (1, f"{first}/counted")
    refused = cli("cp", f"{one}:{first}/new", "-")
    assert refused.code == 2 and "folder" in refused.err


def test_cp_makes_no_folder_here_that_nobody_asked_for(
    cli: Cli, real: ApiHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = cli("new").out.strip()
    home = home_of(real, one)
    (home / "text").write_bytes(b"out")
    monkeypatch.chdir(tmp_path)
    for target in ("no/text", "no/", "no/such/text"):
        refused = cli("cp", f"{one}:{home}/text", target)
        assert (refused.code, "mkdir -p no" in refused.err) == (1, True)
    assert list(tmp_path.iterdir()) == []
    assert cli("cp", f"{one}:{home}/text", "here").code == 0
    assert (tmp_path / "here").read_bytes() == b"out"


def test_cp_between_pipes(cli: Cli, real: ApiHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = cli("new").out.strip()
    home = home_of(real, one)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"piped \xff")))
    assert cli("cp", "-", f"{one}:{home}/piped").code == 0
    assert (home / "piped").read_bytes() == b"piped \xff"
    (home / "text").write_bytes(b"out")
    assert cli("cp", f"{one}:{home}/text", "-").out == "out"
    assert cli("cp", "--json", f"{one}:{home}/text", "-").code == 2
    assert cli("cp", "-", f"{one}:{home}").code == 2


def test_images(cli: Cli, api: ApiHost, tmp_path: Path) -> None:
    (tmp_path / "usr").mkdir()
    assert cli("image", "import", "alpine", str(tmp_path)).out == "alpine\n"
    assert re.search(r"alpine\timported\t\d+ (k|M)?B", cli("image", "ls").out)
    assert [one["name"] for one in json.loads(cli("image", "ls", "--json").out)["images"]] == ["host", "alpine"]
    assert cli("image", "import", "alpine", str(tmp_path)).code == 1
    assert cli("image", "import", "--replace", "alpine", str(tmp_path)).code == 0
    assert cli("image", "rm", "alpine").out == "alpine\n"
    assert cli("image", "rm", "host").code == 1


def test_no_daemon_is_one_clear_line(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refused = cli("--url", "http://127.0.0.1:1", "--key", "k", "ls")
    assert refused.code == 1
    assert refused.err.count("\n") == 1
    assert "no daemon answers at http://127.0.0.1:1" in refused.err
    assert "holdfast up" in refused.err
    monkeypatch.delenv("HOLDFAST_API_KEY", raising=False)
    monkeypatch.setenv("HOLDFAST_STATE_DIR", str(tmp_path))
    assert "HOLDFAST_API_KEY" in cli("ls").err


def test_wrong_usage(cli: Cli) -> None:
    assert cli("nope").code == 2
    assert cli("new", "--ttl", "0").code == 2
    assert cli("new", "-e", "novalue").code == 2
    assert json.loads(cli("ls", "--json", "--nope").err)["error"]["code"] == "usage"
    assert cli("version").out.startswith("holdfast ")
    assert set(json.loads(cli("version", "--json").out)) == {"version"}
    assert cli("--version").out == cli("version").out


def test_interrupt_is_quiet(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("holdfast.cli.sessions.ls.ask", interrupted)
    assert cli("ls") == Ran(130, "", "\nholdfast: interrupted\n")


CHECKS = [
    Check("runtime", True, "runc 1.2"),
    Check("cgroups", False, "not delegated", "run: systemctl …", fatal=False),
    Check("userns", False, "switched off", "set kernel.unprivileged_userns_clone=1"),
]


def test_doctor(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    found = CHECKS

    async def run_checks(_: object) -> list[Check]:
        return found

    daemon = ModuleType("holdfast.daemon.doctor")
    vars(daemon)["run_checks"] = run_checks
    config = ModuleType("holdfast.daemon.config.load")
    vars(config)["load_config"] = lambda _: None
    monkeypatch.setitem(sys.modules, "holdfast.daemon.doctor", daemon)
    monkeypatch.setitem(sys.modules, "holdfast.daemon.config.load", config)
    seen = cli("doctor")
    assert seen.code == 1
    assert seen.out.splitlines() == [
        "✓ runtime: runc 1.2",
        "! cgroups: not delegated — run: systemctl …",
        "✗ userns: switched off — set kernel.unprivileged_userns_clone=1",
    ]
    found = CHECKS[:2]
    assert cli("doctor").code == 0
    assert json.loads(cli("doctor", "--json").out)["ok"] is True


def test_up(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[str | None] = []
    fail: list[Exception] = []

    def start(config: str | None) -> int:
        given.append(config)
        if fail:
            raise fail.pop()
        return 7

    daemon = ModuleType("holdfast.daemon.__main__")
    vars(daemon)["run"] = start
    monkeypatch.setitem(sys.modules, "holdfast.daemon.__main__", daemon)
    config = tmp_path / "holdfast.yaml"
    config.touch()
    assert cli("up", "--config", str(config)).code == 7
    fail[:] = [RuntimeUnavailable("install runc")]
    assert cli("up") == Ran(1, "", "holdfast: install runc\n")
    fail[:] = [ConfigError("listen: wrong")]
    assert json.loads(cli("up", "--json").err)["error"]["code"] == "bad_config"
    assert cli("--config", str(config), "up").code == 7
    assert given == [str(config), None, None, str(config)]


def test_every_verb_reads_the_file_that_the_daemon_reads(
    cli: Cli, api: ApiHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "daemon.json").write_text(json.dumps({"url": api.url}))
    (state / "api_key").write_text(api.key)
    config = tmp_path / "holdfast.yaml"
    config.write_text(f"state_dir: {state}\n")
    for name in ("HOLDFAST_URL", "HOLDFAST_API_KEY", "HOLDFAST_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    assert cli("ls", "--config", str(config)).code == 0
    monkeypatch.chdir(tmp_path)
    assert cli("ls").code == 0
    config.write_text("state_dir: [")
    assert "not valid YAML" in cli("ls").err


def test_new_with_a_list_of_hosts(api: ApiHost, cli: Cli) -> None:
    made = cli("--json", "new", "--allow", "pypi.org", "--allow", "*.pythonhosted.org")
    assert json.loads(made.out)["network"] == {"allow": ["pypi.org", "*.pythonhosted.org"]}
    assert cli("new", "--network", "none", "--allow", "pypi.org").code == 2
    refused = cli("new", "--allow", "http://pypi.org")
    assert refused.code == 1 and "http://pypi.org" in refused.err


def test_events(cli: Cli, api: ApiHost) -> None:
    one = "ses_one"
    api.run(api.tell("created", session_id=one))
    api.run(api.tell("active", session_id="ses_other"))
    api.run(api.tell("error", session_id=one, reason="crashed", error="its processes\thave\nended"))
    shown = cli("events", "--no-follow")
    assert (shown.code, shown.err) == (0, "")
    assert [line.split("\t") for line in shown.out.splitlines()] == [
        ["1", "2023-11-14T22:13:21.250000Z", "created", one],
        ["2", "2023-11-14T22:13:22.250000Z", "active", "ses_other"],
        ["3", "2023-11-14T22:13:23.250000Z", "error", one, "crashed: its processes have ended"],
    ]
    made = cli("new").out.strip()
    api.run(api.tell("error", session_id=made))
    newest = api.run(api.store.events.newest())
    narrowed = cli("events", "--no-follow", "--after", "1", "--session", made[4:], "--kind", "error", "--json")
    [event] = [json.loads(line) for line in narrowed.out.splitlines()]
    assert (event["seq"], event["kind"], event["session_id"]) == (newest, "error", made)
    wrong = cli("events", "--no-follow", "--kind", "nonsense")
    assert wrong.code == 1 and "must be one of created, active" in wrong.err
    assert api.run(api.store.events.prune(1_700_000_003)) == 2
    assert cli("events", "--no-follow", "--after", "0").out.splitlines()[0].split("\t")[::2] == [
        "2",
        "gap",
        "the events up to here are no longer kept",
    ]


HOSTILE = "a\x1b]52;c;ZXZpbA==\x07b\x9b2J\rc"
"""Has some terminals change the clipboard, clear the screen, and write over the line."""


@pytest.mark.parametrize("terminal", [False, True])
def test_what_comes_out_of_a_sandbox_gives_a_terminal_no_commands(
    cli: Cli, api: ApiHost, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    """Directories, questions of agents and errors are named by whoever is in there."""
    api.run(api.tell("thread.question", text=HOSTILE))
    assert cli("events", "--no-follow").out.endswith("\ta]52;c;ZXZpbA==b2Jc\n")
    common.report("failed", HOSTILE, as_json=False)
    assert capsys.readouterr().err == "holdfast: a]52;c;ZXZpbA==b2Jc\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    common.show_table(("ID", "CWD"), [("1", f"/{HOSTILE}\n2\tx")], "none")
    shown = capsys.readouterr().out
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    assert len(shown.splitlines()) == 2, shown


def test_following_events_ends_with_an_interrupt(api: ApiHost) -> None:
    """One line at once for each event, also into a pipe."""
    api.run(api.tell("created"))
    program = "from holdfast.cli.main import main; main(['events'])"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline().startswith(b"1\t")
        api.run(api.tell("destroyed"))
        assert running.stdout.readline().split(b"\t")[2] == b"destroyed"
        running.send_signal(signal.SIGINT)
        assert running.wait(10) == 130
        assert running.stderr.read().strip() == b"holdfast: interrupted"


@pytest.mark.parametrize(("typed", "meant"), [("lss", "ls"), ("docter", "doctor"), ("list", "ls"), ("delete", "rm")])
def test_a_mistyped_verb_gets_a_hint(cli: Cli, typed: str, meant: str) -> None:
    said = cli(typed, "x")
    assert said.code == 2
    assert f"Did you mean {meant}" in said.err
    assert "holdfast --help" in cli("qqqqq").err
    assert "Did you mean" in cli("thread", "lst").err
