"""64 MB into a sandbox and out of it again, through HTTP: as raw bytes by the SDK, and by the JSON routes."""

import asyncio
import base64
import json
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx2

from bench import daemon
from bench.compare import loopback
from bench.daemon import Daemon
from bench.figure import Figure, Reference, Target
from bench.plan import Plan
from bench.samples import Samples

T = TypeVar("T")

NAME = "files"
SIZE_MB = 64
TARGET = Target(100.0, at_least=True)
PATH = "/workspace/benchmark.bin"
SECONDS = 120.0


async def measure(plan: Plan) -> list[Figure]:
    """Each way once per round, and the reference. Every byte is compared with what was sent."""
    rounds = plan.count(15, 2)
    rates = {name: _rate() for name in ("write, SDK", "read, SDK", "write, JSON", "read, JSON", "copy")}
    data = os.urandom(SIZE_MB << 20)
    plan.say(f"{rounds} x ({SIZE_MB} MB by each way, one loopback copy)")
    async with (
        daemon.running() as running,
        running.client() as client,
        client.create_session() as session,
        _http(running) as http,
    ):
        path = f"/v1/sessions/{session.id}/fs"
        body = _encoded(data)
        for _ in range(rounds):
            await _timed(rates["write, SDK"], lambda: session.write(PATH, data))
            assert await _timed(rates["read, SDK"], lambda: session.read(PATH)) == data
            written = await _timed(rates["write, JSON"], lambda: _post(http, f"{path}/write", body))
            assert written.json() == {"ok": True}
            found = await _timed(rates["read, JSON"], lambda: http.get(f"{path}/read", params={"path": PATH}))
            assert base64.b64decode(_content(found)) == data
            rates["copy"].add(SIZE_MB / await asyncio.to_thread(loopback.seconds_to_copy, data))
    reference = Reference("loopback TCP copy", rates.pop("copy"))
    return [Figure(NAME, f"{SIZE_MB} MB {what}", "MB/s", rate, TARGET, reference) for what, rate in rates.items()]


def _rate() -> Samples:
    return Samples(more_is_better=True)


def _encoded(data: bytes) -> bytes:
    return json.dumps({"path": PATH, "content_base64": base64.b64encode(data).decode()}).encode()


def _http(running: Daemon) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {running.key}"}
    return httpx2.AsyncClient(base_url=running.url, headers=headers, timeout=SECONDS, trust_env=False)


async def _post(http: httpx2.AsyncClient, path: str, body: bytes) -> httpx2.Response:
    return await http.post(path, content=body, headers={"Content-Type": "application/json"})


def _content(response: httpx2.Response) -> str:
    response.raise_for_status()
    reply: dict[str, Any] = response.json()
    assert reply["truncated"] is False
    return str(reply["content_base64"])


async def _timed(rate: Samples, exchange: Callable[[], Awaitable[T]]) -> T:
    started = time.perf_counter()
    result = await exchange()
    rate.add(SIZE_MB / (time.perf_counter() - started))
    return result
