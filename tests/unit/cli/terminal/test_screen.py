"""The terminal of ``holdfast sh``: how large this one is."""

import os

import pytest

from holdfast.cli.terminal import screen


@pytest.mark.parametrize("told, used", [((120, 40), (120, 40)), ((0, 0), (80, 24)), ((100, 0), (100, 24))])
def test_a_terminal_that_does_not_know_its_size_has_the_usual_one(
    told: tuple[int, int], used: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under ``script`` or in a CI job: the daemon refuses a terminal of no lines."""
    monkeypatch.setattr("sys.stdout.fileno", lambda: 1)
    monkeypatch.setattr(os, "get_terminal_size", lambda _fd: os.terminal_size(told))
    assert screen.size_here() == used
