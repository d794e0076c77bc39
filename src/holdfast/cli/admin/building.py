"""What a build shows: on a terminal one line per image with its step and its time, elsewhere one line per step."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


@contextmanager
def shown(*, quiet: bool) -> Iterator[Callable[[str, str], None]]:
    """Gives a function to be told of each step: the image, and what is done for it. All of it goes to stderr."""
    if quiet:
        yield lambda _image, _step: None
    elif sys.stderr.isatty():
        with _live() as tell:
            yield tell
    else:
        started = time.monotonic()
        yield lambda image, step: click.echo(f"{time.monotonic() - started:7.1f} s  {image}: {step}", err=True)


@contextmanager
def _live() -> Iterator[Callable[[str, str], None]]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.fields[image]}: {task.description}"))
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True)) as progress:

        def tell(image: str, step: str) -> None:
            if image not in tasks:
                done()
                tasks[image] = progress.add_task("", image=escape(image), total=1)
            progress.update(tasks[image], description=escape(step))

        def done() -> None:
            for task in tasks.values():
                if not progress.tasks[progress.task_ids.index(task)].finished:
                    progress.update(task, description="done", completed=1)

        yield tell
        done()
