"""Events on the default daemon: through the SDK and the command line, as a user would."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import aclosing

import pytest

from holdfast.sdk import Client, SessionEvent
from support.daemons.daemon import DaemonProcess

PATIENCE = 60


def cli(daemon: DaemonProcess, *words: str) -> list[str]:
    environment = {**os.environ, "HOLDFAST_URL": daemon.url, "HOLDFAST_API_KEY": daemon.key}
    program = f"from holdfast.cli.main import main; main({list(words)!r})"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout.splitlines()


@pytest.mark.anyio
async def test_many_watch_many_sessions(daemon: DaemonProcess) -> None:
    async with Client(daemon.url, daemon.key) as client:
        newest = 0
        async for event in client.events(follow=False):
            newest = event.seq

        async def watch(count: int) -> list[SessionEvent]:
            async with aclosing(client.events(newest)) as events:
                return [await anext(events) for _ in range(count)]

        async def live() -> str:
            async with client.create_session(metadata={"test": "events"}) as session:
                await session.exec("true")
                return session.id

        async with asyncio.timeout(PATIENCE):
            watchers = [asyncio.create_task(watch(12)) for _ in range(5)]
            lived = await asyncio.gather(*(live() for _ in range(4)))
            seen = await asyncio.gather(*watchers)
        assert all(one == seen[0] for one in seen)
        assert [event.seq for event in seen[0]] == list(range(newest + 1, newest + 13))
        for session_id in lived:
            mine = [event for event in seen[0] if event.session_id == session_id]
            assert [event.kind for event in mine] == ["created", "active", "destroyed"]
            assert all(event.data["metadata"] == {"test": "events"} for event in mine)
            only = [event async for event in client.events(session_id=session_id, kinds="active", follow=False)]
            assert only == [mine[1]]


def test_the_command_line(daemon: DaemonProcess) -> None:
    [session_id] = cli(daemon, "new")
    cli(daemon, "rm", session_id)
    lines = [line.split("\t") for line in cli(daemon, "events", "--no-follow", "--session", session_id)]
    assert [(line[2], line[3], *line[4:]) for line in lines] == [
        ("created", session_id),
        ("active", session_id),
        ("destroyed", session_id, "requested"),
    ]
    after = lines[1][0]
    [told] = map(json.loads, cli(daemon, "events", "--no-follow", "--after", after, "--session", session_id, "--json"))
    assert (told["kind"], told["data"]["reason"]) == ("destroyed", "requested")


def test_threads_are_in_the_same_log(daemon: DaemonProcess) -> None:
    key = "web:events"
    cli(daemon, "chat", key, "say hello")
    lines = [line.split("\t") for line in cli(daemon, "events", "--no-follow", "--thread", key)]
    assert [(line[2], line[3]) for line in lines] == [("thread.created", key), ("thread.turn_ended", key)]
    assert lines[1][4] == "end_turn"
    cli(daemon, "thread", "rm", key)
    kind = ("--kind", "thread.deleted", "--thread", key, "--json")
    [told] = map(json.loads, cli(daemon, "events", "--no-follow", *kind))
    assert (told["thread_key"], told["data"]["key"]) == (key, key)
