"""What each file of tests costs: seconds of the processor, its children's included, and seconds by the clock.

A run is as long as its processor seconds divided by the cores, or as its longest file. The children are those that
have ended and were waited for: what a sandbox uses after its runtime has let go of it does not count.
"""

import os
from collections import defaultdict
from collections.abc import Generator

import pytest

from support.daemons import forked

PROCESSOR = "processor_seconds"
CLOCK = "clock_seconds"
ENOUGH = 1.0
"""Seconds of a file that are worth a line."""


class Costs:
    """Measures every phase of a test where it runs, and adds up the files where the reports arrive."""

    def __init__(self, shown: int) -> None:
        self._shown = shown
        self._before = 0.0
        self._processor: dict[str, float] = defaultdict(float)
        self._clock: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._before = _spent()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = _spent()
        report.user_properties = [
            *report.user_properties,
            (PROCESSOR, now - self._before),
            (CLOCK, report.duration),
        ]  # this phase's own
        self._before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        for name, value in report.user_properties:
            if name in (PROCESSOR, CLOCK):
                counter = self._processor if name == PROCESSOR else self._clock
                counter[file] += float(str(value))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        cost = sorted(self._processor.items(), key=lambda item: item[1], reverse=True)
        dearest = [file for file, spent in cost if max(spent, self._clock[file]) >= ENOUGH]
        if not dearest:
            return
        processor, clock = sum(self._processor.values()), sum(self._clock.values())
        total = f"{processor:.0f} s of the processor, {clock:.0f} s by the clock"
        terminalreporter.section(f"dearest files, of {total}")
        for file in dearest[: self._shown]:
            terminalreporter.write_line(f"{self._processor[file]:8.1f} s  {self._clock[file]:8.1f} s  {file}")


def _spent() -> float:
    return sum(os.times()[:4]) + forked.spent()
