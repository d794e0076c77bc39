"""``python -m bench``: measure everything, or what ``--only`` names, and print it."""

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from bench import report
from bench.daemon import BenchError
from bench.figure import Figure, Verdict
from bench.gateway import proxy
from bench.plan import Plan
from bench.sessions import concurrency, create, exec, files, fork, idle, load, pool, runner, sleep, stream, transfer
from bench.threads import agents, models, races, threads
from holdfast.drivers.oci.machine import examine
from holdfast.errors import HoldfastError

_MODULES = (
    exec,
    create,
    pool,
    sleep,
    fork,
    idle,
    files,
    transfer,
    stream,
    concurrency,
    load,
    runner,
    threads,
    races,
    models,
    agents,
    proxy,
)
BENCHMARKS: dict[str, Callable[[Plan], Coroutine[None, None, list[Figure]]]] = {
    module.NAME: module.measure for module in _MODULES
}
WIDTH = 150
"""Of the table, where there is no terminal to ask."""


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(BENCHMARKS)), help="Only this one; may be repeated.")
@click.option("--quick", is_flag=True, help="Few repetitions, to see that all works; the figures mean little.")
@click.option("--races", type=click.IntRange(min=1), help="How many threads two daemons race for; 200 usually.")
@click.option("--check", is_flag=True, help="Exit with 1 if a target is missed.")
@click.option("--markdown", is_flag=True, help="Print the table as Markdown.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here.")
def main(
    only: Sequence[str], quick: bool, races: int | None, check: bool, markdown: bool, json_file: Path | None
) -> None:
    """Measure Holdfast against the bare tools on this machine."""
    figures: list[Figure] = []
    plans = {name: Plan(quick, partial(_say, name), races) for name in BENCHMARKS if not only or name in only}
    status = _run(plans, figures)
    if figures:
        if markdown:
            print(report.markdown(figures))
        else:
            report.print_table(Console(width=None if sys.stdout.isatty() else WIDTH), figures)
        if json_file is not None:
            report.write_json(json_file, figures, quick=quick)
    missed = any(figure.verdict is Verdict.MISS for figure in figures)
    sys.exit(status or int(check and missed))


def _run(plans: Mapping[str, Plan], figures: list[Figure]) -> int:
    """Fills ``figures`` as they come, so that what is done is not lost with what is interrupted."""
    try:
        return asyncio.run(_measure(plans, figures))
    except KeyboardInterrupt:
        return 130


async def _measure(plans: Mapping[str, Plan], figures: list[Figure]) -> int:
    """One after the other; a benchmark that fails does not keep the next from running."""
    if problems := [check for check in (await examine(None)).checks if check.fatal and not check.ok]:
        _say("cannot run", "; ".join(f"{check.name}: {check.detail}. {check.remedy}" for check in problems))
        return 1
    status = 0
    for name, plan in plans.items():
        started = time.monotonic()
        try:
            figures += await BENCHMARKS[name](plan)
        except (BenchError, HoldfastError, ExceptionGroup) as failure:
            status = 1
            for one in _leaves(failure):
                _say(name, f"FAILED: {one}")
        _say(name, f"done in {time.monotonic() - started:.0f} s")
    return status


def _leaves(failure: Exception) -> list[Exception]:
    """The failures in a group of them; what nobody foresaw is raised as it is."""
    if isinstance(failure, ExceptionGroup):
        return [leaf for one in failure.exceptions for leaf in _leaves(one)]
    if not isinstance(failure, (BenchError, HoldfastError)):
        raise failure
    return [failure]


def _say(who: str, text: str) -> None:
    print(f"{who}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
