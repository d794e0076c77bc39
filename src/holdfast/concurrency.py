"""Idioms of concurrency that several packages need."""

import asyncio
from typing import Any, TypeVar

F = TypeVar("F", bound="asyncio.Future[Any]")


def seen(future: F) -> F:
    """The same future. Its error, if it ends with one, counts as seen: whoever still waits has it, and asyncio does not
    complain of it in the log when nobody does."""
    future.add_done_callback(_look)
    return future


def _look(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled():
        future.exception()
