"""How much work a JSON body may be, looked at before it is parsed.

Its length does not say: a megabyte of unknown fields is a hundred thousand errors, seconds of a blocked loop, and a
hundred times its size in memory. To parse is one call that lets nobody else run, in whatever thread, so what would take
long is refused here, unparsed. Texts are skipped: a script of a megabyte with commas in it is no work at all.
"""

import asyncio
import re
import time
from collections.abc import Iterator

from holdfast.errors import BadInput

MOST_VALUES = 5000
"""In all lists and objects of one body together."""
MOST_NAMES = 1000
"""In all objects together: each that nobody knows is an error, which takes long to tell."""
MOST_DEPTH = 40
AT_ONCE = 256 * 1024
"""A larger body is looked at in steps, with others in between."""

TURN_SECONDS = 0.005
_FEW = 200
"""Commas and brackets, those in texts included: so few need no closer look."""
_SIGN = re.compile(rb"[,:\[\]{}]")
_TEXT = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_QUOTE = 0x22


async def check_json(body: bytes) -> None:
    """Raises ``BadInput`` if it has too many values, or is nested too deeply. Whether it is JSON, others say."""
    if len(body) <= AT_ONCE:
        if not is_light(body):
            for _step in steps(body):
                pass
        return
    since = time.monotonic()
    for _step in steps(body):
        if time.monotonic() - since > TURN_SECONDS:
            await asyncio.sleep(0)
            since = time.monotonic()


def is_light(body: bytes) -> bool:
    """Say whether a quick count shows that the body is within bounds, as nearly all are."""
    openings = body.count(b"{") + body.count(b"[")
    return openings < MOST_DEPTH and openings + body.count(b",") < _FEW


def steps(body: bytes) -> Iterator[None]:
    """Count exactly, in short steps."""
    values = names = depth = texts = at = 0
    while at < len(body):
        opening = body.find(b'"', at, at + AT_ONCE)
        until = opening if opening >= 0 else at + AT_ONCE
        for found in _SIGN.finditer(body, at, until):
            sign = found[0]
            values += sign in b",[{"
            names += sign == b":"
            depth += (sign in b"[{") - (sign in b"]}")
            if depth < 0:  # no JSON: the parser ends there, too
                return
            _check(values, names, depth)
        yield
        at = until
        if opening < 0:
            continue
        texts += 1
        _check(texts // 2, names, depth)
        at += 1
        while True:
            at = end_of_text(body, at)
            yield
            if at >= len(body) - 1 or body[at] == _QUOTE:
                break
        at += 1


def end_of_text(body: bytes, at: int) -> int:
    """Return where the closing quote of a text is, or where to go on looking."""
    found = _TEXT.match(body, at, at + AT_ONCE)
    assert found is not None  # it matches nothing, too
    return found.end()


def _check(values: int, names: int, depth: int) -> None:
    if values > MOST_VALUES:
        raise BadInput(f"the body has more than {MOST_VALUES} values; send less at once")
    if names > MOST_NAMES:
        raise BadInput(f"the body has more than {MOST_NAMES} named values; send less at once")
    if depth > MOST_DEPTH:
        raise BadInput(f"the body is nested more than {MOST_DEPTH} levels deep")
