"""What goes wrong with a provider is told in a sentence that says what to do, in every dialect, without a secret."""

import json
import socket
from dataclasses import replace

import pytest

from holdfast.broker.models.providers.catalogue import Provider, ProviderKind
from holdfast.vocabulary.models import Wire
from support.servers.model_door import ACCOUNT, FixedKey, MemoryBooks, key_of, model_door
from support.servers.model_server import Garbage, Status, model_server

pytestmark = pytest.mark.anyio
ALONE = replace(ACCOUNT, preferences=())


def message(body: bytes) -> str:
    told = json.loads(body)
    return str((told[0] if isinstance(told, list) else told)["error"]["message"])


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "look at its configuration (providers, key)"),
        (402, "top it up, or choose another model"),
        (403, "whether that key may use this model"),
        (404, "may not know the model m1: look at the models that the configuration names"),
        (429, "try again later, or choose another model"),
        (500, "one has a problem of its own; try again later"),
        (503, "one has a problem of its own; try again later"),
    ],
)
async def test_a_status(wire: Wire, status: int, words: str) -> None:
    books = MemoryBooks()
    books.the_account = ALONE
    async with model_server() as server, model_door(server, wire, books=books) as door:
        server.break_("one", Status(status))
        said = await door.ask("say hello")
        assert said.status == status
        assert words in message(said.body) and key_of("one") not in said.body.decode()


async def test_an_empty_account_is_not_a_busy_one() -> None:
    books = MemoryBooks()
    books.the_account = ALONE
    error = b'{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}'
    async with model_server() as server, model_door(server, Wire.CHAT, books=books) as door:
        server.break_("one", Garbage(error, "application/json", 429))
        said = await door.ask("say hello")
        assert said.status == 402 and "top it up" in message(said.body)


async def test_nobody_listens_and_a_name_that_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    books = MemoryBooks()
    books.the_account = ALONE
    places = {
        f"http://127.0.0.1:{port}": "Connection refused; is it running, and is its base_url right?",
        "http://nobody.invalid": "its name is not known; look at its base_url",
    }
    for url, words in places.items():
        gone = Provider("gone", ProviderKind.OPENAI, url, FixedKey("k"), (), frozenset({Wire.CHAT}))
        async with model_server() as server, model_door(server, Wire.CHAT, more=[gone], books=books) as door:
            said = await door.ask(provider="gone", model="m0")
            assert said.status == 502 and words in message(said.body)
