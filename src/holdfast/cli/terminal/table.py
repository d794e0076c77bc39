"""Tables in windows of any width: ids stay whole, so that they can be copied; other columns are left out, or folded."""

from collections.abc import Sequence

WHOLE = frozenset({"ID", "SESSION", "PROCESS", "HELD BY"})
"""Columns whose cells are never broken."""
_NARROW = 12
"""To how many characters other columns may shrink."""
_GAP = 1


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], less: Sequence[str]) -> None:
    """Print it as wide as the terminal is, and say which columns had no room. ``less`` are those that go first."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    kept = fitting(heads, rows, console.width, less)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, _GAP, 0, 0))
    for place in kept:
        # A table of one column, which is an id, is the only one that may still be too wide: that one is folded.
        table.add_column(heads[place], overflow="fold", no_wrap=heads[place] in WHOLE and len(kept) > 1)
    for row in rows:
        table.add_row(*(Text(row[place]) for place in kept))  # Text: nothing in a name is taken for markup
    console.print(table)
    left_out = [head for place, head in enumerate(heads) if place not in kept]
    if left_out:
        console.print(Text(f"no room for {', '.join(left_out)}: see --json, or a wider window"), style="dim")


def fitting(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int, less: Sequence[str]) -> list[int]:
    """Choose the columns that a window of this width has room for, by their places."""
    widths = [_widest(heads, rows, place) for place in range(len(heads))]
    least = [
        size if head in WHOLE else min(size, max(_NARROW, len(head))) for head, size in zip(heads, widths, strict=True)
    ]
    kept = list(range(len(heads)))
    for head in less:
        if _total(widths, kept) > width and head in heads:
            kept.remove(heads.index(head))
    while _total(least, kept) > width and len(kept) > 1:
        kept.remove(max((place for place in kept[1:] if heads[place] not in WHOLE), default=kept[-1]))
    return kept


def _widest(heads: Sequence[str], rows: Sequence[Sequence[str]], place: int) -> int:
    from rich.cells import cell_len

    return max(cell_len(cell) for cell in (heads[place], *(row[place] for row in rows)))


def _total(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[place] for place in kept) + _GAP * (len(kept) - 1)
