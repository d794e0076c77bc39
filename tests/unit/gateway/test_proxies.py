"""Whose word is taken for who is calling, and where links lead."""

import pytest
from starlette.types import Message, Receive, Scope, Send

from holdfast.gateway.proxies import BehindProxies, TrustedProxies

pytestmark = pytest.mark.anyio

OURS = TrustedProxies(["127.0.0.1", "10.0.0.0/8", "::1"])


async def told(
    headers: list[tuple[bytes, bytes]], peer: str = "127.0.0.1", trusted: TrustedProxies = OURS, kind: str = "http"
) -> tuple[str, str, bytes]:
    """Who calls, by which scheme, to which host, as the API sees it."""
    seen: list[Scope] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope)

    scheme = "ws" if kind == "websocket" else "http"
    scope = {"type": kind, "client": (peer, 5), "scheme": scheme, "headers": [(b"host", b"inside:8080"), *headers]}
    await BehindProxies(app, trusted, None)(scope, _never, _nowhere)
    return seen[0]["client"][0], seen[0]["scheme"], dict(seen[0]["headers"])[b"host"]


async def _never() -> Message:
    raise AssertionError


async def _nowhere(_message: Message) -> None:
    raise AssertionError


FORWARDED = [
    (b"x-forwarded-for", b"6.6.6.6, 203.0.113.9"),
    (b"x-forwarded-proto", b"https"),
    (b"x-forwarded-host", b"holdfast.example.com"),
]


async def test_a_proxy_that_was_named_is_believed() -> None:
    assert await told(FORWARDED) == ("203.0.113.9", "https", b"holdfast.example.com")
    assert (await told(FORWARDED, kind="websocket"))[1] == "wss"
    assert (await told(FORWARDED, peer="::ffff:10.1.2.3"))[0] == "203.0.113.9"


async def test_nobody_else_is() -> None:
    nobody = ("127.0.0.1", "http", b"inside:8080")
    assert await told(FORWARDED, trusted=TrustedProxies()) == nobody
    assert await told(FORWARDED, peer="203.0.113.7") == ("203.0.113.7", "http", b"inside:8080")


async def test_what_stands_before_the_last_stranger_is_not_believed() -> None:
    assert (await told([(b"x-forwarded-for", b"127.0.0.1, 203.0.113.9, 10.0.0.1")]))[0] == "203.0.113.9"
    assert (await told([(b"x-forwarded-for", b"1.1.1.1"), (b"x-forwarded-for", b"2.2.2.2")]))[0] == "2.2.2.2"


@pytest.mark.parametrize("value", [b"", b"unknown", b"1.2.3.4:5", b"10.0.0.1", b"<script>", b"," * 1000])
async def test_an_address_that_is_none_leaves_the_proxy_itself(value: bytes) -> None:
    assert (await told([(b"x-forwarded-for", value)]))[0] == "127.0.0.1"
    assert (await told([(b"x-forwarded-proto", b"gopher")]))[1] == "http"


async def test_places_have_the_path_of_the_public_url() -> None:
    sent: list[Message] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"location", b"/v1/sessions/ses_1"), (b"x-other", b"/v1")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})

    async def send(message: Message) -> None:
        sent.append(message)

    proxies = BehindProxies(app, TrustedProxies(), "https://example.com/holdfast")
    await proxies({"type": "http", "client": ("1.1.1.1", 5), "headers": []}, _never, send)
    assert sent[0]["headers"] == [(b"location", b"/holdfast/v1/sessions/ses_1"), (b"x-other", b"/v1")]
