"""Which results are kept, and which are forgotten."""

from holdfast.runner.shell.execs import KEEP_BYTES, KEEP_RESULTS, Exec, ExecTable

OPTIONS: dict[str, object] = {"timeout_ms": 1000, "limit": KEEP_BYTES}


def add(execs: ExecTable, name: str, output: int = 0, *, done: bool = True) -> Exec:
    job = Exec(name, b"true", b"", OPTIONS)
    execs.add(job)
    job.output.ring.append(0, b"x" * output)
    if done:
        job.finish({"exit_code": 0})
    return job


def test_the_latest_results_are_kept() -> None:
    execs = ExecTable()
    for number in range(KEEP_RESULTS + 5):
        add(execs, str(number))
    kept = [number for number in range(KEEP_RESULTS + 5) if execs.get(str(number))]
    assert kept == list(range(5, KEEP_RESULTS + 5))


def test_large_results_push_old_ones_out_but_the_newest_stays() -> None:
    execs = ExecTable()
    add(execs, "first", KEEP_BYTES // 2)
    add(execs, "second", KEEP_BYTES // 2)
    assert execs.get("first")
    add(execs, "third", 1)
    assert not execs.get("first")
    assert execs.get("second")
    add(execs, "huge", KEEP_BYTES)
    assert [name for name in ("second", "third", "huge") if execs.get(name)] == ["huge"]


def test_what_runs_is_never_forgotten() -> None:
    execs = ExecTable()
    running = add(execs, "running", done=False)
    for number in range(KEEP_RESULTS * 2):
        add(execs, str(number))
    assert execs.get("running") is running
    assert execs.running() == ["running"]
    running.fail("unavailable", "no")
    assert execs.running() == []
    assert execs.get("running") is running, "the newest result"
