"""The benchmarks run. What they measure is not judged here: a test machine is busy with other things."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.daemon import unusable_driver

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
    if reason := unusable_driver():
        pytest.skip(f"the benchmarks need the oci driver: {reason}")
    target = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench", "--quick", "--only", "pool", "--json", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(target.read_text())["figures"]
    assert [figure["target"] for figure in figures if figure["target"]] == ["≤ 12 ms, ≤ 1/5 of the reference"] * 2
    assert all(figure["count"] > 0 and figure["reference_p50"] > 0 for figure in figures)
