"""The other half of the corpus: how commands and shells end, and what goes on behind them."""

from collections.abc import Iterator

import httpx2
import pytest

from e2e.sessions.test_shell_corpus import CASES, ENDS, Case, run_case
from support.daemons.daemon import DaemonProcess


@pytest.fixture(scope="module")
def client(daemon: DaemonProcess) -> Iterator[httpx2.Client]:
    with daemon.client() as client:
        yield client


@pytest.mark.parametrize("case", [case for case in CASES if case.theme in ENDS], ids=lambda case: case.id)
def test_case(case: Case, client: httpx2.Client) -> None:
    run_case(case, client)


def test_every_such_theme_is_there() -> None:
    assert {case.theme for case in CASES} > ENDS
