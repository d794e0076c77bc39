"""Bills on a real daemon: a program in a thread's sandbox asks a model, and what that cost is found everywhere."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.errors import BadInput, Forbidden, RepoFailed
from holdfast.sdk import Client, SyncClient, ThreadEvent
from holdfast.vocabulary.models import channel_tag, placeholder, url_of
from holdfast.vocabulary.turn_events import Kind
from support.daemons.daemon import DaemonProcess, unusable_driver

pytestmark = pytest.mark.anyio

PATIENCE = 120.0
PRICE = {"input": 1000, "output": 10000}
"""In dollars per million: even a few words cost something."""
ASK = (
    "import json, urllib.error, urllib.request as u; "
    "r = u.Request('{url}/v1/chat/completions', json.dumps({{'model': '{model}', 'messages': "
    "[{{'role': 'user', 'content': 'say kelp'}}]}}).encode(), {{'authorization': 'Bearer {key}', "
    "'content-type': 'application/json'}}); "
    "print('kelp' in u.urlopen(r, timeout=60).read().decode())"
)


def ask(model: str = "demo-1", channel: str = "default") -> str:
    """A prompt for the scripted agent: one call to the model."""
    code = ASK.format(url=url_of("demo"), model=model, key=placeholder(channel_tag(channel)))
    return f'run python3 -c "{code}"'


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    personas = tmp_path_factory.mktemp("persona")
    (personas / "soul.md").write_text("Be calm.\n")
    demo = {"kind": "demo", "models": [{"name": "demo-1", "price": PRICE}]}
    settings = {
        "agents": ["scripted"],
        "providers": {"demo": demo},
        "persona_dir": str(personas),
        "persona": ["soul.md"],
        "allowed_models": ["demo/*"],
    }
    with DaemonProcess(max_sessions=20, thread_retry_seconds=0.1, **settings) as process:
        yield process


@pytest.fixture
async def client(daemon: DaemonProcess) -> AsyncIterator[Client]:
    async with Client(daemon.url, daemon.key) as client, asyncio.timeout(PATIENCE):
        yield client


async def output(client: Client, key: str, text: str) -> tuple[str, ThreadEvent]:
    """What the command of a turn has printed, and the turn's last event."""
    events = [event async for event in client.thread(key).send(text)]
    told = [event.data.get("output") for event in events if event.kind == Kind.TOOL_UPDATE]
    return str(told[-1]), events[-1]


async def test_a_turn_is_billed(client: Client, daemon: DaemonProcess) -> None:
    thread = client.thread("bill:1")
    printed, last = await output(client, "bill:1", ask())
    assert (printed, last.kind) == ("True\n", Kind.FINALIZE), printed
    bill = last.data["usage"]
    assert bill["calls"] == 1 and bill["input_tokens"] > 0 and bill["output_tokens"] > 0 and bill["cost_usd"] > 0
    assert last.turn_id is not None
    turn, info = await thread.turn(last.turn_id), await thread.info()
    assert info.usage == turn.usage
    assert (turn.usage.calls, turn.usage.cost_usd) == (1, bill["cost_usd"])

    ann = (await client.keys.add("ann", "use", owner="ann")).key
    async with Client(daemon.url, ann) as hers:
        printed, _ = await output(hers, "bill:1", ask())  # the same key of another owner: another thread
        assert printed == "True\n"
        [line] = (await hers.usage()).lines
        assert (line.what, line.owner, line.calls) == ("bill:1", "ann", 1)
        with pytest.raises(Forbidden):
            await hers.usage(owner="root")
    both = (await client.usage(thread="bill:1")).lines
    assert sorted(str(line.owner) for line in both) == ["ann", "root"]

    await thread.delete()
    report = await client.usage("model", thread="bill:1", owner="root")
    assert [(line.what, line.calls, line.cost_usd) for line in report.lines] == [("demo/demo-1", 1, bill["cost_usd"])]

    def sync() -> int:
        with SyncClient(daemon.url, daemon.key) as other:
            return other.usage("day").total.calls

    assert await asyncio.to_thread(sync) == 2
    shown = await asyncio.to_thread(cli, daemon, "usage", "--thread", "bill:1", "--json")
    assert json.loads(shown)["total"]["calls"] == 2
    table = await asyncio.to_thread(cli, daemon, "usage", "--by", "owner")
    assert [line.split("\t")[0] for line in table.splitlines()] == ["OWNER", "ann", "root", "total"]


async def test_limits_and_allow_lists_hold(client: Client) -> None:
    narrow = {"allowed_models": ["demo/other"]}
    await client.thread("bill:2").resolve(options=narrow)
    printed, last = await output(client, "bill:2", ask())
    assert "HTTPError" in printed and "usage" not in last.data
    await client.thread("bill:2").resolve(options={"allowed_models": ["*"], "limits": {"spend_usd": 0.0}})
    printed, _ = await output(client, "bill:2", ask())
    assert "HTTPError" in printed
    await client.thread("bill:2").resolve(options={"limits": {"spend_usd": None}})
    printed, last = await output(client, "bill:2", ask())
    assert printed == "True\n" and last.data["usage"]["calls"] == 1


async def test_options_that_cannot_be(client: Client) -> None:
    thread = client.thread("bill:3")
    for wrong in ({"persona": ["nobody.md"]}, {"permissions": ["sometimes bash"]}):
        with pytest.raises(BadInput):
            await thread.resolve(options=wrong)
    with pytest.raises(RepoFailed, match="does not appear to be a git repository"):
        await thread.resolve(options={"repo": {"url": "file:///nowhere/kelp.git"}, "persona": ["soul.md"]})
    reply = await thread.send("hello").result()
    assert reply.error is not None and reply.error["code"] == "repo_failed"


def cli(daemon: DaemonProcess, *words: str) -> str:
    program = Path(sys.executable).with_name("holdfast")
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    env |= {"HOLDFAST_URL": daemon.url, "HOLDFAST_API_KEY": daemon.key}
    done = subprocess.run([program, *words], capture_output=True, env=env, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()
