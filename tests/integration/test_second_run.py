"""``scripts/test``: failed tests run once more, alone; what passes then is named, what fails twice fails the run."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "test"

# Fails among others and passes alone, as a test does that the machine was too busy for.
FLAKY = """
    import os
    def test_flaky():
        assert "PYTEST_XDIST_WORKER" not in os.environ
    """
GOOD = """
    def test_good():
        pass
    """
BAD = """
    def test_bad():
        assert False
    """
CRASHING = """
    import os
    def test_crashing():
        if "PYTEST_XDIST_WORKER" in os.environ:
            os._exit(1)
    """
MANY_BAD = """
    import pytest
    @pytest.mark.parametrize("n", range(21))
    def test_bad(n):
        assert False
    """
BROKEN = "import no_such_module"
INTERRUPTING = """
    def test_interrupting():
        raise KeyboardInterrupt
    """


def run(directory: Path, **files: str) -> tuple[int, str]:
    """The script's status and output in a directory with these test files."""
    (directory / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (directory / f"test_{name}.py").write_text(dedent(text))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    plugins = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "xdist.plugin",
    }  # the others take seconds to load
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "-q"],
        cwd=directory,
        env={**inherited, **plugins, "TEST_WORKERS": "2"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def test_without_failures_there_is_one_run(tmp_path: Path) -> None:
    status, said = run(tmp_path, good=GOOD)
    assert status == 0
    assert "once more" not in said


def test_what_passes_alone_is_named_and_the_run_is_green(tmp_path: Path) -> None:
    status, said = run(tmp_path, good=GOOD, flaky=FLAKY)
    assert status == 0, said
    assert "test_flaky.py::test_flaky" in said.partition("PASSED ONLY ALONE")[2]
    assert "FAILED TWICE" not in said


def test_what_fails_twice_fails_the_run(tmp_path: Path) -> None:
    status, said = run(tmp_path, bad=BAD, flaky=FLAKY, good=GOOD)
    assert status == 1
    twice, _, alone = said.partition("FAILED TWICE")[2].partition("PASSED ONLY ALONE")
    assert "test_bad.py::test_bad" in twice and "flaky" not in twice
    assert "test_flaky.py::test_flaky" in alone and "bad" not in alone


def test_a_test_that_ends_its_process_has_failed(tmp_path: Path) -> None:
    status, said = run(tmp_path, good=GOOD, crashing=CRASHING)
    assert status == 0, said
    assert "test_crashing.py::test_crashing" in said.partition("PASSED ONLY ALONE")[2]


@pytest.mark.parametrize(
    ("text", "expected"), [(MANY_BAD, 1), (BROKEN, 1), (INTERRUPTING, 2)], ids=["many", "broken", "interrupt"]
)
def test_what_gets_no_second_run(tmp_path: Path, text: str, expected: int) -> None:
    """Too many failures, a file that cannot be imported, an interrupt."""
    status, said = run(tmp_path, good=GOOD, strange=text)
    assert status == expected, said
    assert "once more" not in said
    assert "PASSED ONLY ALONE" not in said


def test_failures_of_an_earlier_run_are_forgotten(tmp_path: Path) -> None:
    assert run(tmp_path, was=BAD, good=GOOD)[0] == 1
    (tmp_path / "test_was.py").unlink()
    status, said = run(tmp_path, flaky=FLAKY, good=GOOD)
    assert status == 0, said
    assert "test_was" not in said
