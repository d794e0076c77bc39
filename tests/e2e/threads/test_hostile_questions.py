"""The largest and the worst questions that a sandbox can put to a model hold up nobody, and arrive as they were put.

The provider is a real server with TLS: what is sent to it is encrypted in the daemon, and that takes its time, too.
"""

import contextlib
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from holdfast.vocabulary.models import ROOT, placeholder
from support.daemons.daemon import DaemonProcess, unusable_driver
from support.loop_held import LoopHeld
from support.servers.certificates import authority
from support.waiting import wait_for

IMAGE = "b'iVBORw0KGgo' + b'Ab3/' * (7 << 20)"
BODIES = {
    "an image": "chat(image('image/png', IMAGE))",
    "a long line": "chat(text(b'word ' * (5 << 20)))",
    "letters of many bytes": "chat(text('\u00e9\U0001f600'.encode() * (5 << 20)))",
    "many images": "chat(b','.join([image('image/png', b'AbcD' * 20000)] * 350))",
    "many lines": "chat(text(b'a line of a log\\\\n' * 450000))",
    "too many lines": "chat(text(b'a line of a log\\\\n' * 1800000))",
    "escapes": "chat(text(b'\\\\u00e9' * 1300000))",
    "halves of characters": "chat(text(b'\\\\ud800' * 1300000))",
    "tiny texts": "b'{\"model\":\"m1\",\"messages\":[' + b','.join([b'\"a\"'] * 4000000) + b']}'",
    "values": "b'{\"model\":\"m1\",\"messages\":[' + b','.join([b'{}'] * 50000) + b']}'",
    "parts": "chat(b','.join([text(b'a')] * 12000))",
    "names": "b'{\"model\":\"m1\",' + b','.join(b'\"k%d\":1' % i for i in range(50000)) + b'}'",
    "nested": "b'[' * 8000000",
    "quotes": "b'{\"model\":\"' + b'\\\\\"' * 1900000 + b'\"}'",
    "unfinished": 'b\'{"model":"m1","a":"\' + b\'A\' * (28 << 20)',
    "controls": "chat(text(b'A' * (14 << 20) + b'\\n' + b'A' * (14 << 20)))",
    "no letters": "chat(text(b'A' * (14 << 20) + b'\\xff' + b'A' * (14 << 20)))",
}
ANSWERED = {
    "an image",
    "a long line",
    "letters of many bytes",
    "many images",
    "many lines",
    "escapes",
    "halves of characters",
    "parts",
    "names",
}
MOVED = ("an image", "letters of many bytes", "many lines", "parts")
"""The dearest to translate."""
MAKING = f"""
def text(words):
    return b'{{"type":"text","text":"' + words + b'"}}'

def image(kind, data):
    return b'{{"type":"image_url","image_url":{{"url":"data:' + kind.encode() + b';base64,' + data + b'"}}}}'

def chat(parts):
    return b'{{"model":"m1","messages":[{{"role":"user","content":[' + parts + b']}}]}}'

IMAGE = {IMAGE}
"""
ASKING = """
import sys, urllib.error, urllib.request

url, key, body = sys.argv[1], sys.argv[2], eval(sys.argv[3])
request = urllib.request.Request(url, body, {"authorization": "Bearer " + key, "content-type": "application/json"})
try:
    with urllib.request.urlopen(request, timeout=100) as response:
        print(response.status, response.read().decode()[:300])
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode()[:300])
"""


def made(kind: str) -> bytes:
    """The body that the sandbox makes, made here."""
    names: dict[str, object] = {}
    exec(MAKING, names)
    body = eval(BODIES[kind], names)
    assert isinstance(body, bytes)
    return body


class Provider(http.server.ThreadingHTTPServer):
    """Keeps the last question, and answers it with a word."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.path = ""
        self.body = b""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Provider

    def do_POST(self) -> None:
        self.server.path = self.path
        self.server.body = self.rfile.read(int(self.headers["content-length"]))
        said = {
            "id": "1",
            "role": "assistant",
            "content": [{"type": "text", "text": "yes"}],
            "choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
            "usage": {"input_tokens": 1, "output_tokens": 1, "prompt_tokens": 1, "completion_tokens": 1},
        }
        answer = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@dataclass
class World:
    daemon: DaemonProcess
    provider: Provider
    client: httpx2.Client
    session_id: str
    held: LoopHeld

    def ask(self, provider: str, body: str) -> tuple[int, str]:
        """As a program in the sandbox, with a body that this expression makes there."""
        path = f"{ROOT}/llm/{provider}/v1/chat/completions"
        quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in (path, placeholder("default"), body))
        wish = {"cmd": f"python3 /workspace/ask.py {quoted}", "timeout_ms": 110_000}
        result = self.client.post(f"/v1/sessions/{self.session_id}/exec", json=wish).json()
        assert result["exit_code"] == 0, result
        status, _, said = result["stdout"].partition(" ")
        return int(status), said

    def ask_watched(self, provider: str, body: str) -> tuple[int, str]:
        return self.held.check(f"a question to {provider}", lambda: self.ask(provider, body))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("provider")
    trusted = authority(folder / "ca")
    key = folder / "key"
    key.write_text("sk-a-key-of-this-provider-that-is-long")
    with pytest.MonkeyPatch.context() as patch, Provider(trusted.server()) as provider:
        threading.Thread(target=provider.serve_forever, daemon=True).start()
        url = f"https://127.0.0.1:{provider.server_address[1]}"
        patch.setenv("SSL_CERT_FILE", str(trusted.ca_file))
        models = [{"name": "m1", "price": {"input": 1, "output": 1}, "images": True}]
        common = {"key": {"file": str(key)}, "models": models}
        providers = {
            "chat": {"kind": "openai-compatible", "base_url": f"{url}/v1", **common},
            "claude": {"kind": "anthropic", "base_url": url, **common},
            "demo": {"kind": "demo"},
        }
        settings = {"providers": providers, "model_preferences": ["chat/m1"]}
        with (
            DaemonProcess(**settings) as daemon,
            daemon.client(120) as client,
            contextlib.closing(LoopHeld(daemon.url)) as held,
        ):
            yield make_world(daemon, provider, client, held)
        provider.shutdown()


def make_world(daemon: DaemonProcess, provider: Provider, client: httpx2.Client, held: LoopHeld) -> World:
    client.post("/v1/threads/web:large/resolve", json={}).raise_for_status()

    def session_id() -> object:
        return client.get("/v1/threads/web:large").json().get("session_id")

    wait_for(lambda: bool(session_id()), "the thread has a sandbox")
    where = str(session_id())
    wish = {"path": "/workspace/ask.py", "content": MAKING + ASKING}
    client.post(f"/v1/sessions/{where}/fs/write", json=wish).raise_for_status()
    return World(daemon, provider, client, where, held)


@pytest.mark.parametrize("kind", list(BODIES))
def test_a_question_holds_up_nobody_and_arrives_as_it_was(world: World, kind: str) -> None:
    status, said = world.ask_watched("chat", BODIES[kind])
    assert status == (200 if kind in ANSWERED else 400), said
    if status == 200:
        assert json.loads(world.provider.body) == json.loads(made(kind))


@pytest.mark.parametrize("kind", MOVED)
def test_a_question_in_another_dialect_holds_up_nobody(world: World, kind: str) -> None:
    status, said = world.ask_watched("claude", BODIES[kind])
    assert status == (200 if kind in ANSWERED else 400), said
    if kind == "an image":
        [message] = json.loads(world.provider.body)["messages"]
        told = {"type": "base64", "media_type": "image/png", "data": eval(IMAGE).decode()}
        assert message["content"][0]["source"] == told


@pytest.mark.parametrize("kind", MOVED)
def test_a_question_to_the_demo_model_holds_up_nobody(world: World, kind: str) -> None:
    status, said = world.ask_watched("demo", BODIES[kind])
    assert status == (200 if kind in ANSWERED else 400), said


def test_a_large_question_takes_a_few_times_its_size(world: World) -> None:
    world.ask("chat", BODIES["many lines"])
    before = peak_memory(world.daemon.pid)
    world.ask("chat", BODIES["an image"])
    world.ask("claude", BODIES["an image"])
    assert peak_memory(world.daemon.pid) - before < 3 * len(made("an image"))


def peak_memory(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) << 10
