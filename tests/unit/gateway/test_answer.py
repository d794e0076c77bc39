"""Answers of programs: every part has a bound, and the end of one is never guessed."""

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidAnswer, NoAnswer
from holdfast.gateway.proxy.answer import MOST_HEADERS, ServerAnswer

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\n"


def feed(*pieces: bytes, end: bool = True) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    for piece in pieces:
        reader.feed_data(piece)
    if end:
        reader.feed_eof()
    return reader


async def body_of(answer: ServerAnswer) -> bytes:
    await answer.read_head(5)
    found = b""
    while (piece := await answer.next_piece()) is not None:
        found += piece
    return found


async def test_an_answer_of_a_length() -> None:
    answer = ServerAnswer(feed(OK + b"Content-Length: 4\r\nX-A: 1\r\n\r\nbody", end=False))
    assert await body_of(answer) == b"body"
    assert (answer.status, answer.length, answer.reusable) == (200, b"4", True)


async def test_one_that_breaks_off() -> None:
    for data in (b"Content-Length: 5\r\n\r\nbody", b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n"):
        with pytest.raises(InvalidAnswer):
            await body_of(ServerAnswer(feed(OK + data)))


async def test_one_that_ends_with_its_connection_says_so() -> None:
    answer = ServerAnswer(feed(OK + b"\r\nbody"))
    assert await body_of(answer) == b"body"
    assert answer.ended_by_hanging_up and not answer.reusable


async def test_a_reset_is_no_end() -> None:
    reader = feed(OK + b"\r\nbo", end=False)
    answer = ServerAnswer(reader)
    await answer.read_head(5)
    assert await answer.next_piece() == b"bo"
    reader.set_exception(ConnectionResetError())
    with pytest.raises(InvalidAnswer):
        await answer.next_piece()


async def test_the_status_is_that_of_the_first_answer() -> None:
    answer = ServerAnswer(
        feed(OK + b"Content-Length: 2\r\n\r\nokHTTP/1.1 404 No\r\nX-A: 1\r\nContent-Length: 0\r\n\r\n")
    )
    assert await body_of(answer) == b"ok"
    assert answer.status == 200 and not answer.reusable
    assert [name for name, _ in answer.headers] == [b"Content-Length"]


@pytest.mark.parametrize("status", [b"204", b"304"])
async def test_answers_without_a_body_have_no_length(status: bytes) -> None:
    answer = ServerAnswer(feed(b"HTTP/1.1 " + status + b" X\r\nContent-Length: 9\r\n\r\n", end=False))
    assert await body_of(answer) == b"" and answer.length is None and answer.reusable


async def test_head() -> None:
    answer = ServerAnswer(feed(OK + b"Content-Length: 9\r\n\r\n", end=False), bodiless=True)
    assert await body_of(answer) == b"" and answer.length == b"9" and not answer.reusable


async def test_what_comes_before_an_answer() -> None:
    answer = ServerAnswer(
        feed(b"HTTP/1.1 100 C\r\nX-B: 1\r\n\r\nHTTP/1.1 103 H\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n")
    )
    await answer.read_head(5)
    assert answer.continues.is_set() and answer.status == 200
    assert [name for name, _ in answer.headers] == [b"Content-Length"]


async def test_the_bytes_after_an_upgrade_are_not_http() -> None:
    shake = b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    answer = ServerAnswer(feed(shake + b"\x81\x02hi", end=False), upgrades=True)
    await answer.read_head(5)
    assert answer.rest == b"\x81\x02hi" and not answer.reusable
    for bad in (shake.replace(b"Upgrade: websocket\r\n", b""), b"HTTP/1.1 101 S\r\n\r\n"):
        with pytest.raises(InvalidAnswer):
            await ServerAnswer(feed(bad), upgrades=True).read_head(5)
    with pytest.raises(InvalidAnswer):
        await ServerAnswer(feed(shake)).read_head(5)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\r\n\r\n",
        b"HTTP/1.1 099 X\r\n\r\n",
        b"HTTP/1.1 600 X\r\n\r\n",
        OK + b"Transfer-Encoding: gzip\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        OK + b"X: 1\r\n" * (MOST_HEADERS + 1) + b"\r\n",
        OK + b"X: " + b"x" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 103 H\r\nLink: x\r\n\r\n" * 10_000,
    ],
)
async def test_what_is_no_answer(data: bytes) -> None:
    with pytest.raises(InvalidAnswer):
        await ServerAnswer(feed(data)).read_head(5)


async def test_a_program_that_is_silent() -> None:
    with pytest.raises(NoAnswer):
        await ServerAnswer(feed(b"HTTP/1.1 ", end=False)).read_head(0.05)


@given(st.binary(max_size=400), st.integers(min_value=1, max_value=50))
@settings(max_examples=200, deadline=None)
def test_rubbish_ends(data: bytes, step: int) -> None:
    async def read() -> None:
        pieces = [(OK + data)[at : at + step] for at in range(0, len(OK + data), step)]
        with contextlib.suppress(InvalidAnswer):
            await body_of(ServerAnswer(feed(*pieces)))

    asyncio.run(read())
