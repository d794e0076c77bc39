"""A bar for what takes a while: shown to a person at a terminal, and to nobody else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(title: str, total: int | None, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Give a function to be told of each piece of bytes. The bar goes to stderr, and away at the end."""
    if quiet or not sys.stderr.isatty():
        yield _ignore
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(escape(title), total=total)
        yield lambda size: progress.advance(task, size)


def _ignore(_size: int) -> None:
    """Do nothing: nobody is looking."""
