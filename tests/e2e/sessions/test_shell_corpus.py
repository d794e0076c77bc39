"""The corpus of hard shell cases, run through HTTP on a real sandbox.

The cases are data: `shell_corpus/<theme>.yaml` is a list of cases, and a case is a list of exec calls with what each
must give. Every case has a session of its own, and ends with the same question to its main shell (`INVARIANT`):
whatever the case did, the shell must still answer. A field that this file does not know is an error, so that a typing
mistake cannot turn an expectation off.

What a step says nothing about is not checked, with one exception: unless it says otherwise (`timed_out: true`, or
`null` for "either"), a step must not time out.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx2
import pytest
import yaml

from support.waiting import wait_for

CORPUS = Path(__file__).parent / "shell_corpus"
ENDS = frozenset({"background", "ends", "killers", "restart", "timeouts"})
"""Themes that are in ``test_shell_corpus_ends.py``: two files run at the same time."""
STEP_TIMEOUT_MS = 20_000
"""Sent with each step that has no `timeout_ms`: a shell that hangs fails its case in seconds, not minutes."""


class Daemon(Protocol):
    """What the `daemon` fixture gives."""

    @property
    def url(self) -> str: ...

    @property
    def key(self) -> str: ...


# --- the format -------------------------------------------------------------------------------------------------------


class BadCorpus(Exception):
    """A file of the corpus does not follow the format."""


@dataclass(frozen=True, slots=True)
class Expect:
    """What a step must give; `None` means "not checked", and for `timed_out` "either"."""

    exit_code: int | list[int] | None = None
    stdout: str | None = None
    stderr: str | None = None
    output: str | None = None
    stdout_contains: str | None = None
    stdout_not_contains: str | None = None
    stdout_re: str | None = None
    stdout_len: int | None = None
    stdout_len_or_truncated: int | None = None  # all of it; or less, and `truncated` says so
    stderr_contains: str | None = None
    stderr_not_contains: str | None = None
    stderr_re: str | None = None
    stderr_len_or_truncated: int | None = None
    output_contains: str | None = None
    timed_out: bool | None = False
    shell_restarted: bool | None = None
    truncated: bool | None = None
    cwd: str | None = None
    max_ms: int | None = None  # generous: proves that the call did not hang, measures nothing
    error: str | None = None  # the API must refuse the call with this code


@dataclass(frozen=True, slots=True)
class Step:
    """One exec call. `…_py` is a Python expression that makes a text too long to write down."""

    expect: Expect
    cmd: str | None = None
    cmd_py: str | None = None
    timeout_ms: int | None = None
    stdin: str | None = None
    stdin_py: str | None = None
    env: dict[str, str] | None = None
    cwd: str | None = None
    shell: str | None = None
    pause_ms: int = 0  # the session is left alone for so long before the call
    meanwhile: tuple[Step, ...] = ()  # run while this step, which must sleep, is still running

    def request(self) -> dict[str, Any]:
        """The body of the call."""
        body: dict[str, Any] = {
            "cmd": self.cmd if self.cmd_py is None else eval(self.cmd_py),
            "timeout_ms": STEP_TIMEOUT_MS if self.timeout_ms is None else self.timeout_ms,
            "stdin": self.stdin if self.stdin_py is None else eval(self.stdin_py),
            "env": self.env,
            "cwd": self.cwd,
            "shell": self.shell,
        }
        return {name: value for name, value in body.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Case:
    """A list of steps in one session."""

    theme: str
    name: str
    why: str  # which naive design it breaks
    steps: tuple[Step, ...]
    needs: tuple[str, ...] = ()  # commands that the image must have, or `own_pids` (see `_missing`)
    strict_order: bool = False  # `output` is compared although the writes are only microseconds apart
    skip_invariant: str | None = None  # the reason why the shell need not answer `INVARIANT` as usual

    @property
    def id(self) -> str:
        return f"{self.theme}/{self.name}"


INVARIANT = Step(
    cmd="echo ok-$((6*7))",
    timeout_ms=10_000,
    expect=Expect(exit_code=0, stdout="ok-42\n", timed_out=False, max_ms=10_000),
)


def _fields(kind: type[Any], where: str, raw: object, derived: tuple[str, ...] = ()) -> dict[str, Any]:
    """`raw`, once it is certain that it is a mapping whose keys are all fields of `kind`."""
    if not isinstance(raw, dict):
        raise BadCorpus(f"{where}: a mapping is wanted, not {raw!r}")
    known = {field.name for field in dataclasses.fields(kind)} - set(derived)
    if unknown := raw.keys() - known:
        raise BadCorpus(f"{where}: unknown field {', '.join(sorted(map(str, unknown)))}")
    return raw


def _check_types(kind: type[Any], where: str, raw: dict[str, Any], skip: tuple[str, ...] = ()) -> None:
    """Scalars only, each of the type that its field is annotated with."""
    types: dict[str, type[Any] | tuple[type[Any], ...]] = {"int": int, "str": str, "bool": bool, "list[int]": list}
    for field in dataclasses.fields(kind):
        if field.name not in raw or field.name in skip:
            continue
        value = raw[field.name]
        names = str(field.type).split(" | ")
        if value is None and "None" in names:
            continue
        if not any(type(value) is types[name] for name in names if name in types):
            raise BadCorpus(f"{where}: {field.name} is {value!r}, not {field.type}")


def _step(where: str, raw: object) -> Step:
    fields = dict(_fields(Step, where, raw))
    _check_types(Step, where, fields, skip=("expect", "env", "meanwhile"))
    if ("cmd" in fields) == ("cmd_py" in fields):
        raise BadCorpus(f"{where}: give one of cmd and cmd_py")
    if "stdin" in fields and "stdin_py" in fields:
        raise BadCorpus(f"{where}: give one of stdin and stdin_py")
    env = fields.get("env", {})
    if not isinstance(env, dict) or not all(isinstance(text, str) for pair in env.items() for text in pair):
        raise BadCorpus(f"{where}: env is not a mapping of strings")
    expect = _fields(Expect, f"{where}.expect", fields.get("expect", {}))
    _check_types(Expect, f"{where}.expect", expect)
    for name in ("stdout_re", "stderr_re"):
        if name in expect:
            re.compile(expect[name])
    fields["expect"] = Expect(**expect)
    fields["meanwhile"] = tuple(
        _step(f"{where}.meanwhile[{index}]", beside) for index, beside in enumerate(fields.get("meanwhile", []))
    )
    return Step(**fields)


def _case(theme: str, raw: object) -> Case:
    fields = dict(_fields(Case, theme, raw, derived=("theme",)))
    where = f"{theme}/{fields.get('name')}"
    _check_types(Case, where, fields, skip=("steps", "needs"))
    for name in ("name", "why", "steps"):
        if not fields.get(name):
            raise BadCorpus(f"{where}: {name} is missing")
    if not re.fullmatch(r"[a-z0-9_-]+", fields["name"]):
        raise BadCorpus(f"{where}: a name has lower-case letters, digits, '-' and '_'")
    fields["steps"] = tuple(_step(f"{where}[{index}]", step) for index, step in enumerate(fields["steps"]))
    fields["needs"] = tuple(fields.get("needs", ()))
    return Case(theme=theme, **fields)


def load(folder: Path = CORPUS) -> list[Case]:
    """Every case of every file, in the order of the files' names."""
    return [_case(path.stem, raw) for path in sorted(folder.glob("*.yaml")) for raw in yaml.safe_load(path.read_text())]


CASES = load()


# --- running a case ---------------------------------------------------------------------------------------------------


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 600 else f"{text[:400]} … {text[-100:]} ({len(text)} characters)"


@dataclass(frozen=True, slots=True)
class Problem:
    """One expectation that was not met."""

    field: str
    expected: object
    got: object

    def __str__(self) -> str:
        got = "got".rjust(len(self.field) + len(": expected"))
        return f"  {self.field}: expected {_shorten(self.expected)}\n  {got} {_shorten(self.got)}"


def _same(expect: Expect, result: dict[str, Any]) -> Iterator[Problem]:
    """Fields that must be equal to what is expected."""
    for name in ("stdout", "stderr", "output", "timed_out", "shell_restarted", "truncated", "cwd"):
        expected = getattr(expect, name)
        if expected is not None and result[name] != expected:
            yield Problem(name, expected, result[name])
    codes = [expect.exit_code] if isinstance(expect.exit_code, int) else expect.exit_code
    if codes is not None and result["exit_code"] not in codes:
        yield Problem("exit_code", expect.exit_code, result["exit_code"])
    if expect.stdout_len is not None and len(result["stdout"]) != expect.stdout_len:
        yield Problem("stdout_len", expect.stdout_len, len(result["stdout"]))


def _like(expect: Expect, result: dict[str, Any]) -> Iterator[Problem]:
    """Fields that must hold, not hold or match something."""
    for stream in ("stdout", "stderr", "output"):
        text = result[stream]
        wanted = getattr(expect, f"{stream}_contains")
        if wanted is not None and wanted not in text:
            yield Problem(f"{stream}_contains", wanted, text)
        unwanted = getattr(expect, f"{stream}_not_contains", None)
        if unwanted is not None and unwanted in text:
            yield Problem(f"{stream}_not_contains", unwanted, text)
        pattern = getattr(expect, f"{stream}_re", None)
        if pattern is not None and not re.search(pattern, text):
            yield Problem(f"{stream}_re", pattern, text)
        length = getattr(expect, f"{stream}_len_or_truncated", None)
        whole = len(text) == length
        if length is not None and not (whole or (result["truncated"] and 0 < len(text) < length)):
            yield Problem(f"{stream}_len_or_truncated", length, f"{len(text)}, truncated: {result['truncated']}")


def _sane(result: dict[str, Any]) -> Iterator[Problem]:
    """What holds for every result, whatever the command was."""
    texts = ("exec_id", "cwd", "output", "stdout", "stderr")
    flags = ("truncated", "timed_out", "shell_restarted")
    shape: dict[str, type | tuple[type, ...]] = {"exit_code": int, "duration_ms": (int, float)}
    shape |= dict.fromkeys(texts, str) | dict.fromkeys(flags, bool)
    for name, kind in shape.items():
        if not isinstance(result.get(name), kind):
            yield Problem(name, kind, result.get(name, "nothing"))
            return
    if not 0 <= result["exit_code"] <= 255:
        yield Problem("exit_code", "0 to 255", result["exit_code"])
    if result["timed_out"] and result["exit_code"] != 124:
        yield Problem("exit_code", "124, since it timed out", result["exit_code"])
    both = result["stdout"] + result["stderr"]
    if not result["truncated"] and "\ufffd" not in result["output"] + both and len(result["output"]) != len(both):
        yield Problem("output", f"both streams, {len(both)} characters", result["output"])


def _refused(step: Step, response: httpx2.Response) -> Iterator[Problem]:
    """An expected refusal came, or an unexpected one did not."""
    if response.status_code == 200:
        if step.expect.error is not None:
            yield Problem("error", step.expect.error, response.json())
        return
    try:
        code = response.json()["error"]["code"]
    except (ValueError, KeyError, TypeError):
        code = None
    if code is None or code != step.expect.error:
        yield Problem("error", step.expect.error, f"HTTP {response.status_code}: {response.text[:500]}")


class Session:
    """One session of the daemon under test."""

    def __init__(self, client: httpx2.Client) -> None:
        self._client = client
        created = client.post("/v1/sessions", json={})
        assert created.status_code == 201, f"create: HTTP {created.status_code}: {created.text}"
        self.id: str = created.json()["id"]

    def call(self, step: Step) -> httpx2.Response:
        body = step.request()
        patience = max(body["timeout_ms"], 0) / 1000 + 40
        return self._client.post(f"/v1/sessions/{self.id}/exec", json=body, timeout=patience)

    def check(self, where: str, step: Step) -> None:
        """Run a step and the steps beside it; fail with all that is wrong about it."""
        time.sleep(step.pause_ms / 1000)  # time is part of the case
        begun = time.monotonic()
        with ThreadPoolExecutor(max_workers=1) as beside:
            running = beside.submit(self.call, step)
            if step.meanwhile:
                wait_for(lambda: self.ask("pgrep -c sleep || true") != "0", "the step has begun to sleep")
            for index, other in enumerate(step.meanwhile):
                self.check(f"{where}, meanwhile {index + 1}", other)
            try:
                response = running.result()
            except httpx2.TimeoutException:
                pytest.fail(f"{where}: {_shorten(step.cmd_py or step.cmd)}\n  no answer at all", pytrace=False)
        took_ms = (time.monotonic() - begun) * 1000
        problems = list(_refused(step, response))
        result: object = response.text[:1000]
        if not problems and response.status_code == 200:
            result = got = response.json()
            problems = list(_sane(got)) or [*_same(step.expect, got), *_like(step.expect, got)]
        if step.expect.max_ms is not None and took_ms > step.expect.max_ms:
            problems.append(Problem("max_ms", step.expect.max_ms, round(took_ms)))
        if problems:
            lines = [
                f"{where}: {_shorten(step.cmd_py or step.cmd)}",
                *map(str, problems),
                f"  all of it: {_shorten(result)}",
            ]
            pytest.fail("\n".join(lines), pytrace=False)

    def ask(self, cmd: str) -> str:
        """The standard output of a command that is no part of the case."""
        response = self.call(Step(cmd=cmd, shell="probe", expect=Expect()))
        assert response.status_code == 200, response.text
        return str(response.json()["stdout"]).strip()

    def destroy(self) -> None:
        self._client.delete(f"/v1/sessions/{self.id}")


def _missing(session: Session, needs: tuple[str, ...]) -> list[str]:
    """Those needs that the sandbox does not meet.

    `own_pids` is for cases that signal every process they can see: never where those are the host's.
    """
    missing = []
    for need in needs:
        if need == "own_pids":
            if int(session.ask("set -- /proc/[0-9]*; echo $#")) > 12:
                missing.append(need)
        elif session.ask(f"command -v {need} || echo missing") == "missing":
            missing.append(need)
    return missing


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Iterator[httpx2.Client]:
    headers = {"Authorization": f"Bearer {daemon.key}"}
    with httpx2.Client(base_url=daemon.url, headers=headers, timeout=60) as client:
        yield client


def run_case(case: Case, client: httpx2.Client) -> None:
    """In a session of its own."""
    session = Session(client)
    try:
        if missing := _missing(session, case.needs):
            pytest.skip(f"the sandbox lacks {', '.join(missing)}")
        for index, step in enumerate(case.steps, start=1):
            session.check(f"{case.id}, step {index} of {len(case.steps)}", step)
        if case.skip_invariant is None:
            session.check(f"{case.id}, after all steps", INVARIANT)
    finally:
        session.destroy()


@pytest.mark.parametrize("case", [case for case in CASES if case.theme not in ENDS], ids=lambda case: case.id)
def test_case(case: Case, client: httpx2.Client) -> None:
    run_case(case, client)


# --- the corpus itself ------------------------------------------------------------------------------------------------


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 120


def test_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_exact_order_is_asserted_only_where_it_is_certain() -> None:
    """`output` of writes with nothing between them is left to the one case that is about it."""
    strict = {"bytes/output-order-of-builtins", "bytes/output-order-of-many-lines"}
    assert {case.id for case in CASES if case.strict_order} == strict
    for case in CASES:
        for step in case.steps:
            if step.expect.output is not None and not case.strict_order:
                assert "sleep" in (step.cmd or ""), f"{case.id} compares `output` of writes that nothing separates"


@pytest.mark.parametrize(
    "raw",
    [
        {"name": "a", "why": "b", "steps": [{"cmd": "true", "expects": {}}]},
        {"name": "a", "why": "b", "steps": [{"cmd": "true", "expect": {"exitcode": 0}}]},
        {"name": "a", "why": "b", "steps": [{"cmd": "true", "expect": {"exit_code": "0"}}]},
        {"name": "a", "why": "b", "steps": [{"cmd": "true", "cmd_py": "'true'"}]},
        {"name": "a", "why": "b", "steps": [{"cmd": "true", "env": {"N": 1}}]},
        {"name": "a", "why": "b", "steps": []},
        {"name": "a", "steps": [{"cmd": "true"}]},
        {"name": "A b", "why": "b", "steps": [{"cmd": "true"}]},
        {"name": "a", "why": "b", "theme": "c", "steps": [{"cmd": "true"}]},
    ],
    ids=["step", "expect", "type", "two-commands", "env", "no-steps", "no-why", "name", "theme"],
)
def test_a_mistake_in_the_corpus_is_an_error(raw: dict[str, Any]) -> None:
    with pytest.raises(BadCorpus):
        _case("theme", raw)
