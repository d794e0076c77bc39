"""Commands on a thread's agent, on a real daemon with real sandboxes: over HTTP by the SDK, and over a WebSocket."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from holdfast.errors import BadInput, WrongState
from holdfast.sdk import Client, SyncClient
from holdfast.vocabulary.turn_events import Kind
from support.daemons.daemon import DaemonProcess, unusable_driver

pytestmark = pytest.mark.anyio

PATIENCE = 90.0


@pytest.fixture(scope="module")
def talking() -> Iterator[DaemonProcess]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with DaemonProcess() as process:
        yield process


@pytest.fixture
async def client(talking: DaemonProcess) -> AsyncIterator[Client]:
    async with Client(talking.url, talking.key) as client, asyncio.timeout(PATIENCE):
        yield client


async def test_what_has_changed_and_a_review_of_it(client: Client) -> None:
    thread = client.thread("web:changes")
    await thread.send("say hello").result()
    with pytest.raises(WrongState, match="no git repository"):
        await thread.diff()
    start = "git init -q && echo old > a.txt && git add a.txt && git -c user.name=n -c user.email=e commit -qm x"
    await thread.send(f"run cd /workspace && {start}").result()
    assert (await thread.diff()).diff == ""
    with pytest.raises(WrongState, match="nothing has changed"):
        await thread.review()
    changes = "echo new > a.txt && mkdir d && echo other > 'd/b c.txt' && cp uploads/*/given.txt uploads/used"
    await thread.send(f"run cd /workspace && {changes}", files=[("given.txt", b"from the user\n")]).result()
    diff = await thread.diff()
    assert (diff.source, diff.truncated) == ("git", False)
    assert "-old\n+new\n" in diff.diff and "+++ b/d/b c.txt" in diff.diff and "+other" in diff.diff
    assert "given.txt" not in diff.diff and "+++ b/uploads/used" in diff.diff, "what a user has sent is no change"
    left = await thread.send("run cd /workspace && git status --short && git stash list").result()
    assert left.ok and (await thread.diff()).diff == diff.diff, "asking changes nothing"
    result = await thread.review("the second file").result()
    assert "In particular: the second file" in result.text and "+other" in result.text


async def test_a_change_in_the_second_of_the_commit(client: Client) -> None:
    """Of the same length: git then goes by the age of its index, and looks into the file."""
    thread = client.thread("web:quick")
    then = "touch -d @1700000000"
    commit = "git add a.txt && git -c user.name=n -c user.email=e commit -qm x"
    made = f"git init -q && git config core.trustctime false && echo old > a.txt && {then} a.txt && {commit}"
    await thread.send(f"run cd /workspace && {made} && {then} .git/index && echo new > a.txt && {then} a.txt").result()
    assert "-old\n+new\n" in (await thread.diff()).diff


async def test_commands_over_a_websocket(talking: DaemonProcess) -> None:
    headers = {"Authorization": f"Bearer {talking.key}"}
    async with (
        asyncio.timeout(PATIENCE),
        aiohttp.ClientSession(headers=headers) as http,
        http.ws_connect(f"{talking.url}/v1/threads/socket:2/ws") as socket,
    ):

        async def ask(**wish: Any) -> dict[str, Any]:
            await socket.send_json({**wish, "ref": 1})
            while True:
                told: dict[str, Any] = await socket.receive_json()
                if told.get("ref") == 1:
                    return told

        async def ended() -> None:
            while (await socket.receive_json()).get("event", {}).get("kind") != Kind.FINALIZE:
                pass

        assert (await ask(use_model={"model": "scripted-2"}))["models"]["current"] == "scripted-2"
        assert (await ask(use_model={"model": "huge"}))["error"]["code"] == "bad_input"
        await ask(send={"id": "m1", "text": "write a.txt x"})
        await ended()
        assert (await ask(commands={}))["commands"] == {"agent": "scripted", "commands": []}
        assert (await ask(command={"id": "m2", "name": "init"}))["error"]["code"] == "bad_input"
        assert (await ask(diff={}))["error"]["code"] == "wrong_state"
        assert (await ask(review={"id": "m3"}))["error"]["code"] == "wrong_state"
        assert (await ask(revert={}))["reverted"]["reverted"] is True
        assert (await ask(new_session={}))["new_session"]["seq"] > 0


def test_commands_without_async(talking: DaemonProcess) -> None:
    with SyncClient(talking.url, talking.key) as client:
        assert client.models().agent == "scripted"
        thread = client.thread("sync:2")
        assert thread.use_model("scripted-2").current == "scripted-2"
        assert thread.send("model").result().text == "scripted-2\n"
        assert thread.models().current == "scripted-2"
        thread.use_model(None)
        assert thread.new_session() > 0
        assert thread.send("history").result().text == "I remember 0 messages\n"
        assert thread.commands() == []
        with pytest.raises(BadInput, match="has no /compact"):
            thread.command("compact").sent()
        with pytest.raises(WrongState):
            thread.diff()
