"""Whether the ids of sandboxes are somebody else's, too: users of a directory service, or subordinate ids of users.

Who has such an id shares with a sandbox what the kernel counts per user. All ids cannot be looked up, and a directory
need not list its users; so it is asked for those that it does list and for a sample, and its settings for a range.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from holdfast.drivers.base import Check
from holdfast.drivers.commands import run
from holdfast.drivers.linux.ids import ID_BASE, ID_COUNT
from holdfast.drivers.oci.id_ranges import Layout
from holdfast.errors import HoldfastError

_ETC = Path("/etc")
_NAME = "ids of others"
_SECONDS = 5.0
_SAMPLES = 50
_SHOWN = 3
_SSSD = (200_000, 2_000_200_000)
"""What SSSD makes ids of when nobody says otherwise."""
_FREE = ((2_001_000_000, 2_147_352_575), (700_000_000, 899_999_999), (300_000_000, 499_999_999))
"""To choose from: above what SSSD takes, and below what systemd keeps for foreign files; then others."""

IdOwner = tuple[str, range]
"""Who, and which ids."""


async def checks(layout: Layout, etc: Path = _ETC) -> Sequence[Check]:
    """Return lines of ``holdfast doctor``, as root; an ordinary user's sandboxes have that user's ids. This never
    raises."""
    if os.geteuid() != 0:
        return []
    spans, disk = layout.spans(), range(ID_BASE, ID_BASE + ID_COUNT)
    given = [*subordinate(etc), *await users(sample([*spans, disk]))]
    return [_sessions(spans, [*given, *directory_range(etc)]), *_files(disk, given)]


def _sessions(spans: Sequence[range], others: Sequence[IdOwner]) -> Check:
    used = " and ".join(map(_text, spans))
    hits = [(who, ids) for who, ids in others if any(overlap(ids, span) for span in spans)]
    if not hits:
        return Check(_NAME, True, f"nobody else is known to have those of sandboxes, {used}")
    detail = f"sandboxes have {used}, and so has somebody else: {_list(hits)}"
    return Check(_NAME, False, detail, _remedy([ids for _who, ids in others]), fatal=False)


def _remedy(others: Sequence[range]) -> str:
    advice = "Else they share with sandboxes what the kernel counts per user. Set id_range to ids that nobody has"
    for first, last in _FREE:
        if not any(overlap(ids, range(first, last + 1)) for ids in others):
            return f"{advice}, such as id_range: {first}-{last}"
    return f"{advice}: FIRST-LAST"


def _files(disk: range, others: Sequence[IdOwner]) -> list[Check]:
    """These cannot be chosen: what is on disk would belong to nobody any more."""
    hits = [(who, ids) for who, ids in others if overlap(ids, disk)]
    if not hits:
        return []
    detail = f"files of sandboxes belong to {_text(disk)} on disk, and so does somebody else: {_list(hits)}"
    return [Check(_NAME, False, detail, "Give those users and groups other ids", fatal=False)]


def _list(hits: Sequence[IdOwner]) -> str:
    more = f"; and {len(hits) - _SHOWN} more" if len(hits) > _SHOWN else ""
    return "; ".join(f"{who} {_text(ids)}" for who, ids in hits[:_SHOWN]) + more


def _text(ids: range) -> str:
    return str(ids[0]) if len(ids) == 1 else f"{ids[0]}-{ids[-1]}"


def overlap(one: range, other: range) -> bool:
    return bool(one) and bool(other) and one[0] <= other[-1] and other[0] <= one[-1]


def sample(spans: Sequence[range]) -> list[int]:
    """Return some ids of each range: its first, and others evenly over it."""
    return sorted({number for span in spans for number in span[:: max(1, len(span) // _SAMPLES)]})


def subordinate(etc: Path) -> Iterator[IdOwner]:
    """Return what ``/etc/subuid`` and ``/etc/subgid`` give to users."""
    for name in ("subuid", "subgid"):
        for line in _lines(etc / name):
            owner, first, count = [*line.split(":"), "", "", ""][:3]
            if first.isdigit() and count.isdigit():
                yield f"{etc / name} gives {owner}", range(int(first), int(first) + int(count))


def directory_range(etc: Path) -> Iterator[IdOwner]:
    """Return the range that a directory service makes ids of, where the host asks one."""
    lines = [line for line in _lines(etc / "nsswitch.conf") if re.match(r"(passwd|group):", line)]
    services = {word for line in lines for word in line.split()}
    if "sss" in services:
        text = "\n".join(_lines(etc / "sssd/sssd.conf"))
        first, last = (
            int(match[1]) if (match := re.search(rf"^\s*ldap_idmap_range_{end}\s*=\s*(\d+)", text, re.M)) else usual
            for end, usual in zip(("min", "max"), _SSSD, strict=True)
        )
        yield "SSSD gives users and groups", range(first, last)
    if "winbind" in services:
        for line in _lines(etc / "samba/smb.conf"):
            if match := re.match(r"\s*idmap config\s*(.*?)\s*:\s*range\s*=\s*(\d+)\s*-\s*(\d+)", line):
                yield f"winbind gives {match[1]}", range(int(match[2]), int(match[3]) + 1)


async def users(numbers: Sequence[int]) -> list[IdOwner]:
    """Return users and groups that the host lists, and those with these numbers that it does not list."""
    found: dict[str, int] = {}
    for database, kind in (("passwd", "user"), ("group", "group")):
        for keys in ((), tuple(map(str, numbers))):
            found |= await _ask(database, kind, keys)
    return [(who, range(number, number + 1)) for who, number in found.items()]


async def _ask(database: str, kind: str, keys: Sequence[str]) -> Mapping[str, int]:
    try:
        done = await run("getent", database, *keys, timeout=_SECONDS)
    except HoldfastError:
        return {}  # not there, or the directory does not answer
    rows = [line.split(":") for line in done.stdout.splitlines()]
    return {f"the {kind} {row[0]} is": int(row[2]) for row in rows if len(row) > 2 and row[2].isdigit()}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
