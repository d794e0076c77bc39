"""The benchmarks run. What they measure is not judged here: a test machine is busy with other things."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.daemons.daemon import unusable_driver
from support.servers.postgres import MISSING, running_postgres

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(300)
def test_exec_benchmark_prints_its_figures(tmp_path: Path) -> None:
    if reason := unusable_driver():
        pytest.skip(f"the benchmarks need the oci driver: {reason}")
    target = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench", "--quick", "--only", "exec", "--json", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("Holdfast benchmarks", "p50", "p99", "target", "ratio", "true, Client", "true, SyncClient"):
        assert word in done.stdout
    figures = json.loads(target.read_text())["figures"]
    assert [figure["benchmark"] for figure in figures] == ["exec", "exec"]
    assert all(figure["count"] > 0 and figure["ratio"] > 0 for figure in figures)


@pytest.mark.timeout(300)
def test_pool_benchmark_measures_warm_against_cold(tmp_path: Path) -> None:
    figures = _quick_figures("pool", tmp_path)
    assert [figure["target"] for figure in figures if figure["target"]] == ["≤ 12 ms, ≤ 1/5 of the reference"] * 2
    assert all(figure["count"] > 0 and figure["reference_p50"] > 0 for figure in figures)


@pytest.mark.timeout(300)
def test_stream_benchmark_measures_delay_rate_and_what_a_slow_reader_costs(tmp_path: Path) -> None:
    delay, rate, growth = _quick_figures("stream", tmp_path)
    assert [figure["target"] for figure in (delay, rate, growth)] == ["≤ 5 ms", "≥ 80 MB/s", "≤ 20 MB"]
    assert delay["p50"] > delay["reference_p50"] > 0, "nothing is faster than a pipe, and no clock runs ahead"
    assert rate["p50"] > 0
    assert rate["reference_p50"] > 0


@pytest.mark.timeout(300)
def test_load_benchmark_counts_errors_and_compares_the_tail(tmp_path: Path) -> None:
    latency, tail, errors, memory = _quick_figures("load", tmp_path)
    assert [figure["target"] for figure in (tail, errors, memory)] == [
        "≤ 10 x the reference",
        "≤ 0 errors",
        "≤ 250 MB",
    ]
    assert errors["p50"] == 0
    assert latency["count"] == 100
    assert (tail["p50"], tail["reference_p50"]) == (latency["p99"], latency["p50"])
    assert memory["p50"] > 0


@pytest.mark.timeout(300)
def test_models_benchmark_compares_with_asking_directly(tmp_path: Path) -> None:
    first, age, stalls, share = _quick_figures("models", tmp_path)
    assert [figure["target"] for figure in (first, stalls)] == ["≤ 3 ms", "≤ 0 events"]
    assert first["count"] == 10 and first["reference_p50"] > 0
    assert age["count"] == 200 * 20 and age["p50"] > age["reference_p50"] > 0
    assert 0 < share["p50"] <= 100


@pytest.mark.timeout(300)
def test_races_benchmark_counts_sandboxes_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_postgres() as server:
        if server is None:
            pytest.skip(MISSING)
        server.create("bench")
        monkeypatch.setenv("HOLDFAST_BENCH_POSTGRES", server.url("bench"))
        double, took = _quick_figures("races", tmp_path)
    assert (double["p50"], double["target"]) == (0, "≤ 0 sandboxes")
    assert took["count"] == 4


def _quick_figures(name: str, tmp_path: Path) -> list[dict[str, Any]]:
    if reason := unusable_driver():
        pytest.skip(f"the benchmarks need the oci driver: {reason}")
    target = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench", "--quick", "--only", name, "--json", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures: list[dict[str, Any]] = json.loads(target.read_text())["figures"]
    return figures
