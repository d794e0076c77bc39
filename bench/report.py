"""The figures on paper: a table for a terminal, Markdown for the documentation, JSON for programs."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from bench import machine
from bench.figure import Figure, Verdict, number, times

_COLOURS = {Verdict.PASS: "green", Verdict.MISS: "bold red", Verdict.INFO: "dim"}
_HEADINGS = ("figure", "p50", "p99", "target", "reference", "ratio", "")


def _cells(figure: Figure) -> tuple[str, ...]:
    reference = figure.reference
    ratio = figure.ratio
    return (
        f"{figure.benchmark}: {figure.what}",
        f"{number(figure.samples.p50)} {figure.unit}",
        f"{number(figure.samples.p99)} {figure.unit}",
        figure.wanted,
        f"{reference.what}: {number(reference.samples.p50)} {figure.unit}" if reference else "",
        times(ratio) if ratio is not None else "",
        figure.verdict.value,
    )


def print_table(console: Console, figures: Sequence[Figure]) -> None:
    table = Table(box=box.SIMPLE_HEAD, title="Holdfast benchmarks", caption=machine.describe())
    for heading in _HEADINGS:
        table.add_column(heading, justify="right" if heading in ("p50", "p99", "ratio") else "left", overflow="fold")
    before = ""
    for figure in figures:
        if before and figure.benchmark != before:
            table.add_section()
        before = figure.benchmark
        *cells, verdict = _cells(figure)
        colour = _COLOURS[figure.verdict]
        table.add_row(*cells, f"[{colour}]{verdict}[/]")
    console.print(table)


def markdown(figures: Sequence[Figure]) -> str:
    lines = ["| " + " | ".join(_HEADINGS) + " |", "| --- | ---: | ---: | --- | --- | ---: | --- |"]
    lines += ["| " + " | ".join(_cells(figure)) + " |" for figure in figures]
    return "\n".join([*lines, "", machine.describe()])


def write_json(path: Path, figures: Sequence[Figure], *, quick: bool) -> None:
    report = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "quick": quick,
        "figures": [figure.as_json() for figure in figures],
    }
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
