"""The runbook's log events and metrics are real: somebody who greps for one must be able to find it.

Each name must stand where the code logs, or makes a metric; a docstring does not count. What is cheap to provoke is
provoked in ``tests/integration/test_runbook.py``.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("runbook", "pool", "events", "models", "network")
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
FILES = (
    ".json",
    ".img",
    ".log",
    ".md",
    ".yaml",
    ".toml",
    ".py",
    ".db",
    ".lock",
    ".com",
    ".org",
    ".sh",
    ".conf",
    ".db.reserve",
)


def events_of(page: str) -> set[str]:
    """Log events that a page names in its tables of them, and those of the runbook's text."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    if page != "runbook":
        text = "\n".join(re.findall(r"^\| log event \|.*?\n\n", f"{text}\n\n", re.MULTILINE | re.DOTALL))
    found: set[str] = set()
    for line in text.splitlines():
        before = ""
        for name in re.findall(r"`((?:[a-z_]+)?(?:\.[a-z_]+)+)`", line):
            whole = f"{before.rpartition('.')[0]}{name}" if name.startswith(".") and before else name
            if not whole.startswith(".") and not whole.endswith(FILES):
                found.add(whole)
                before = whole
    return found


def metrics_of(page: str) -> set[str]:
    return set(re.findall(r"`(holdfast_[a-z_]+)", (ROOT / "docs" / f"{page}.md").read_text()))


@cache
def logged() -> frozenset[str]:
    return frozenset(name for tree in _trees() for name in _logged_in(tree))


@cache
def measured() -> frozenset[str]:
    """As ``/metrics`` shows them: a counter's name ends with ``_total``."""
    found = set()
    for tree in _trees():
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            kind = call.func.id if isinstance(call.func, ast.Name) else ""
            if kind in ("Counter", "Gauge", "Histogram") and call.args:
                for name in _texts(call.args[0], {}):
                    found.add(f"{name.removesuffix('_total')}_total" if kind == "Counter" else name)
    return frozenset(found)


@cache
def _trees() -> tuple[ast.Module, ...]:
    return tuple(ast.parse(path.read_text()) for path in sorted((ROOT / "src/holdfast").rglob("*.py")))


def _assigned(tree: ast.Module) -> dict[str, ast.expr]:
    return {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


@cache
def _constants() -> dict[str, ast.expr]:
    """Of all modules, for those that import one."""
    every = [_assigned(tree) for tree in _trees()]
    return {name: value for one in every for name, value in one.items() if name.isupper()}


def _logged_in(tree: ast.Module) -> Iterator[str]:
    known = {**_constants(), **_assigned(tree)}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr in LEVELS and call.args and _is_log(func.value):
            yield from _texts(call.args[0], known)
        elif isinstance(func, ast.Attribute) and func.attr == "attempt" and len(call.args) > 1:
            yield from (f"{what}.failed" for what in _texts(call.args[1], known))  # Operations.attempt


def _is_log(value: ast.expr) -> bool:
    name = value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else ""
    return name.lstrip("_") in ("log", "logger")


def _texts(value: ast.expr, known: dict[str, ast.expr]) -> Iterator[str]:
    """The texts that this expression can be."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.IfExp):
        yield from _texts(value.body, known)
        yield from _texts(value.orelse, known)
    elif isinstance(value, ast.Name) and value.id in known:
        yield from _texts(known[value.id], {})


@pytest.mark.parametrize("page", PAGES)
def test_every_log_event_is_logged_somewhere(page: str) -> None:
    assert sorted(events_of(page) - logged()) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_metric_is_made_somewhere(page: str) -> None:
    assert sorted(metrics_of(page) - measured()) == []


def test_the_pages_are_read() -> None:
    """So that a change of their form does not make the tests above say nothing."""
    assert {"session.created", "session.adopted", "webhook.lost", "sandbox.health.retry"} <= events_of("runbook")
    assert {"pool.sandbox.ready", "pool.sandbox.unusable", "pool.refill.failed"} <= events_of("pool")
    assert "holdfast_thread_session_replacements_total" in metrics_of("runbook")
    assert len(events_of("runbook")) > 40
