"""Models in a real sandbox without any network: they are reached through the daemon, and the key is not inside."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.broker.demo import wire_of
from holdfast.sdk import Client, Session, Thread
from holdfast.vocabulary.models import PORT, ROOT, Wire, placeholder
from support.agents.installed import need_agent
from support.daemons.daemon import DaemonProcess, unusable_driver, wait_for
from support.machine.machine import init_pid, is_calling, processes_of
from support.secrets import ENVIRONMENTS, FILES, counting, in_memory
from support.servers.model_server import ModelServer, Status, model_server

pytestmark = pytest.mark.anyio

PATIENCE = 120.0
KEY = "sk-QzR7thisistherealkeyofaproviderQzR7"
MARK = "sk-QzR7thisissomethingelsealtogetherQ7"
"""Put into the sandbox by the test, to see that the search finds what is there."""
KINDS = {Wire.CHAT: "openai", Wire.RESPONSES: "openai", Wire.MESSAGES: "anthropic", Wire.GEMINI: "gemini"}
PRICE = {"input": 1, "output": 10}

ASKING = """
import json, sys, threading, urllib.request
url, key, count, body = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
said = [None] * count
def ask(number):
    headers = {"authorization": "Bearer " + key, "content-type": "application/json"}
    request = urllib.request.Request(url, body.replace("NUMBER", str(number)).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=100) as response:
            said[number] = [response.status, response.read().decode()]
    except urllib.error.HTTPError as error:
        said[number] = [error.code, error.read().decode()]
    except OSError as error:
        said[number] = [0, str(error)]
threads = [threading.Thread(target=ask, args=(number,)) for number in range(count)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps(said))
"""


@dataclass
class Talk:
    """A thread with its sandbox, and the providers that it may reach."""

    daemon: DaemonProcess
    server: ModelServer
    client: Client
    thread: Thread
    session: Session

    async def ask(self, wire: Wire, text: str, *, count: int = 1, model: str = "m1") -> list[tuple[int, str]]:
        """As a program in the sandbox; ``NUMBER`` in the text is another one each time."""
        path, body = question(wire, text, model)
        url = f"{ROOT}/llm/{KINDS[wire]}-1{path}"
        words = [url, placeholder("default"), str(count), json.dumps(body)]
        quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
        result = await self.session.exec(f"python3 /workspace/ask.py {quoted}", timeout_ms=110_000)
        assert result.exit_code == 0, result.output
        return [(status, body) for status, body in json.loads(result.stdout)]


def question(wire: Wire, text: str, model: str) -> tuple[str, dict[str, object]]:
    messages = [{"role": "user", "content": text}]
    match wire:
        case Wire.CHAT:
            return "/v1/chat/completions", {"model": model, "messages": messages, "stream": True}
        case Wire.RESPONSES:
            return "/v1/responses", {"model": model, "input": messages, "stream": True}
        case Wire.MESSAGES:
            return "/v1/messages", {"model": model, "max_tokens": 99, "messages": messages, "stream": True}
        case Wire.GEMINI:
            contents = [{"role": "user", "parts": [{"text": text}]}]
            return f"/v1beta/models/{model}:streamGenerateContent?alt=sse", {"contents": contents}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of the providers: the daemon lives longer than the server of one test."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        number: int = free.getsockname()[1]
    yield number


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[DaemonProcess]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    key = tmp_path_factory.mktemp("keys") / "key"
    key.write_text(KEY)
    providers = {}
    for kind in dict.fromkeys(KINDS.values()):
        for number in (1, 2):
            name = f"{kind}-{number}"
            url = f"http://127.0.0.1:{port}/llm/{name}" + ("/v1" if kind == "openai" else "")
            models = [{"name": f"m{number}", "price": PRICE}]
            providers[name] = {"kind": kind, "base_url": url, "key": {"file": str(key)}, "models": models}
    url = f"http://127.0.0.1:{port}/llm/chat-2/v1"
    models = [{"name": "m2", "price": PRICE}]
    providers["chat-2"] = {"kind": "openai-compatible", "base_url": url, "key": {"file": str(key)}, "models": models}
    preferences = [f"{kind}-2/m2" for kind in dict.fromkeys(KINDS.values())]
    with DaemonProcess(providers=providers, model_preferences=preferences, max_sessions=100) as process:
        process.keep_port()
        yield process


@pytest.fixture
async def server(port: int) -> AsyncIterator[ModelServer]:
    async with model_server(port) as server:
        yield server


@pytest.fixture
async def talk(daemon: DaemonProcess, server: ModelServer) -> AsyncIterator[Talk]:
    async with Client(daemon.url, daemon.key) as client, asyncio.timeout(PATIENCE):
        thread = client.thread("web:models")
        await thread.send("hello").result()
        info = await thread.info()
        assert info.session_id is not None
        session = await client.get_session(info.session_id)
        await session.write("/workspace/ask.py", ASKING)
        yield Talk(daemon, server, client, thread, session)


async def test_a_program_reaches_the_model_without_a_key_or_a_network(talk: Talk) -> None:
    for wire in Wire:
        [(status, body)] = await talk.ask(wire, "say hello from afar")
        assert status == 200 and "afar" in body, (wire, body)
        assert talk.server.asked(f"{KINDS[wire]}-1")[-1].key == KEY
    outside = await talk.session.exec("curl -sS -m 5 http://1.1.1.1", timeout_ms=20_000)
    assert outside.exit_code != 0
    used = await talk.client.usage("model", thread="web:models")
    assert used.total.calls >= 4 and used.total.input_tokens > 0 and used.total.cost_usd > 0
    assert [port.port for port in await talk.session.ports.list()] == [], "the way out is nobody's server"


async def test_the_key_is_nowhere_inside(talk: Talk) -> None:
    await talk.session.exec(f"echo {MARK} > /workspace/.mark; export MARK={MARK}; sleep 300 >/dev/null 2>&1 &")
    await talk.ask(Wire.CHAT, "say hello")
    headers = await talk.session.exec(f"curl -si {ROOT}/llm/openai-1/v1/models")
    assert "200 OK" in headers.stdout and KEY not in headers.stdout
    for secret, is_there in ((MARK, True), (KEY, False)):
        for command in (FILES, ENVIRONMENTS):
            found = await talk.session.exec(counting(command, secret), timeout_ms=60_000)
            assert (int(found.stdout) > 0) is is_there, (command, secret)
        pids = await asyncio.to_thread(processes_of, talk.daemon, talk.session.id)
        assert bool(await asyncio.to_thread(in_memory, pids, secret.encode())) is is_there


async def test_sandboxes_of_no_thread_have_no_models(talk: Talk) -> None:
    async with await talk.client.create_session() as plain:
        refused = await plain.exec(f"curl -sS http://127.0.0.1:{PORT}/llm/openai-1/v1/models")
        assert refused.exit_code == 7, refused.output
    fork = await talk.session.fork()
    try:
        answer = await fork.exec(f"curl -sS http://127.0.0.1:{PORT}/llm/openai-1/v1/models")
        assert answer.exit_code == 7 or "belongs to no thread" in answer.stdout, answer.output
    finally:
        await fork.destroy()


async def test_another_model_answers_when_the_first_cannot(talk: Talk) -> None:
    for wire in Wire:
        talk.server.break_(f"{KINDS[wire]}-1", Status(429))
        [(status, body)] = await talk.ask(wire, "say hello from the second")
        assert status == 200 and "second" in body, (wire, body)
        talk.server.mend(f"{KINDS[wire]}-1")
        # The thread's first choice is asked in its own dialect, whatever that of the question is.
        is_openai = wire in (Wire.CHAT, Wire.RESPONSES)
        assert wire_of(talk.server.asked("openai-2")[-1].path) is (wire if is_openai else Wire.RESPONSES)
    events = [event async for event in talk.thread.events(follow=False)]
    assert {event.data["to"] for event in events if event.kind == "model-switched"} == {"openai-2/m2"}


async def test_an_agent_goes_on_with_a_model_of_another_dialect(talk: Talk) -> None:
    need_agent("pi")
    talk.server.break_("anthropic-1", Status(529))
    thread = talk.client.thread("web:dialects")
    options = {"agent": "pi", "model": "anthropic-1/m1", "model_preferences": ["chat-2/m2"]}
    script = "say first part\nrun expr 6000 + 60 > /workspace/made\nsay last part"
    result = await thread.send(script, options=options).result()
    assert (result.reason, result.error) == ("end_turn", None), talk.daemon.tail()
    assert (result.text.count("first part"), result.text.count("last part")) == (1, 1), result.text
    session = await talk.client.get_session(str((await thread.info()).session_id))
    assert await session.read("/workspace/made") == b"6060\n", "its tool has really run"
    asked = {name: talk.server.asked(name) for name in ("anthropic-1", "chat-2")}
    assert {wire_of(one.path) for one in asked["anthropic-1"]} == {Wire.MESSAGES}
    assert {wire_of(one.path) for one in asked["chat-2"]} == {Wire.CHAT}
    assert len(asked["anthropic-1"]) == len(asked["chat-2"]) == 2
    switched = [event.data async for event in thread.events(follow=False) if event.kind == "model-switched"]
    assert [(data["from"], data["to"]) for data in switched] == [("anthropic-1/m1", "chat-2/m2")]
    await thread.delete()


async def test_fifty_streams_at_the_same_time(talk: Talk) -> None:
    said = await talk.ask(Wire.MESSAGES, "say this is number NUMBER of many", count=50)
    assert [status for status, _ in said] == [200] * 50
    for number, (_, body) in enumerate(said):
        assert f"{number}" in body and "message_stop" in body


async def test_who_asks_while_the_daemon_is_away_is_answered_by_the_next_one(talk: Talk) -> None:
    body = json.dumps(question(Wire.CHAT, "say hello to the next one", "m1")[1])
    ask = f"python3 /workspace/ask.py {ROOT}/llm/openai-1/v1/chat/completions {placeholder('default')} 1 '{body}'"
    waiting = "until [ -e /workspace/go ]; do sleep 0.1; done; "
    process = await talk.session.processes.start(waiting + ask)
    inside = Path(f"/proc/{await asyncio.to_thread(init_pid, talk.daemon, talk.session.id)}")
    await asyncio.to_thread(talk.daemon.kill)
    try:
        (talk.daemon.state_dir / "oci" / talk.session.id / "disk/workspace/go").touch()
        await asyncio.to_thread(wait_for, lambda: is_calling(inside), "it has called")
    finally:
        await asyncio.to_thread(talk.daemon.start)
    assert (await process.wait()).exit_code == 0
    output = "".join([chunk.text for chunk in await process.output()])
    assert json.loads(output)[0][0] == 200 and "next" in output


async def test_limits_of_a_thread(talk: Talk) -> None:
    await talk.thread.resolve(options={"limits": {"requests_per_minute": 2}})
    try:
        said = [(await talk.ask(Wire.CHAT, "say hello"))[0] for _ in range(3)]
        assert said[-1][0] == 429 and "2 requests a minute" in said[-1][1]
    finally:
        await talk.thread.resolve(options={"limits": {"requests_per_minute": 1000}})


async def test_a_thread_that_has_slept_has_its_models_again(talk: Talk) -> None:
    await talk.session.hibernate()
    [(status, body)] = await talk.ask(Wire.CHAT, "say good morning")
    assert status == 200 and "morning" in body
