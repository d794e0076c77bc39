"""Files that come with messages, and files that turns leave behind."""

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncIterator

import pytest

from holdfast.errors import BadInput, FileMissing, SandboxLost, TooLarge
from holdfast.threads.files import files
from holdfast.threads.names import ThreadRef
from holdfast.vocabulary.turn_events import Kind
from support.fake_host import until
from support.threads.threads import REF, FakeSite, ThreadDaemon
from support.waiting import linger

pytestmark = pytest.mark.anyio

OTHER = ThreadRef(REF.owner, "slack:T1:C1:2")


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def content(daemon: ThreadDaemon, file_id: str, ref: ThreadRef = REF) -> bytes:
    async with daemon.threads.download(ref, file_id) as found:
        return b"".join([piece async for piece in found.read(0, found.row.size)])


def inside(site: FakeSite) -> dict[str, bytes]:
    runner = next(iter(site.host.world.sandboxes.values())).runner
    assert runner is not None
    return runner.files


FOUR_FILES = (("a", 4), ("b", 3), ("c", 2), ("d", 1))


async def test_an_upload_is_in_the_sandbox_when_the_agent_is_asked(site: FakeSite) -> None:
    big = b"x" * 700_000
    async with site.daemon() as daemon:
        file = await daemon.threads.upload(REF, "data.csv", pieces(big, b"end"))
        await daemon.say("attachments", "m1", attachments=[file.id])
        turn = await daemon.ended("m1")
        path = f"/workspace/uploads/{file.id}/data.csv"
        assert await content(daemon, file.id) == big + b"end"
        assert (await daemon.threads.message(REF, "m1")).attachments == (file.id,)
    assert (file.size, file.sha256) == (700_003, hashlib.sha256(big + b"end").hexdigest())
    assert turn.row.answer == f"{path}\n"
    assert inside(site)[path] == big + b"end"


async def test_what_cannot_be_uploaded(site: FakeSite) -> None:
    async def breaks() -> AsyncIterator[bytes]:
        yield b"half"
        raise SandboxLost("the client hung up")

    async with site.daemon(max_file_bytes=10) as daemon:
        with pytest.raises(TooLarge):
            await daemon.threads.upload(REF, "big", pieces(b"123456", b"123456"))
        with pytest.raises(SandboxLost):
            await daemon.threads.upload(REF, "cut", breaks())
        for name in ("", "a/b", "..", "x" * 300):
            with pytest.raises(BadInput):
                await daemon.threads.upload(REF, name, pieces(b"1"))
        assert await daemon.threads.files(REF) == []
    assert [path for path in (site.root / "files").rglob("*") if path.is_file()] == []


async def test_a_file_of_another_thread_cannot_be_named(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        file = await daemon.threads.upload(OTHER, "secret", pieces(b"1"))
        with pytest.raises(FileMissing):
            await daemon.say("say hello", "m1", attachments=[file.id])
        with pytest.raises(FileMissing):
            await content(daemon, file.id, REF)


async def test_new_files_for_display_are_artifacts(site: FakeSite) -> None:
    display = "/workspace/output/display"
    async with site.daemon() as daemon:
        first = await daemon.talk(f"write {display}/a.txt one\nwrite {display}/deep/b.txt two", "m1")
        second = await daemon.talk("say nothing new", "m2")
        third = await daemon.talk(f"write {display}/a.txt three", "m3")
        final = [event for event in await daemon.events() if event.kind == Kind.FINALIZE]
        assert await content(daemon, third.artifacts[0].id) == b"three"
        assert await content(daemon, first.artifacts[0].id) == b"one"
        listed = await daemon.threads.files(REF)
    assert [file.name for file in first.artifacts] == ["a.txt", "deep/b.txt"]
    assert second.artifacts == []
    assert [file.name for file in third.artifacts] == ["a.txt"]
    assert final[0].data["artifacts"] == [file.id for file in first.artifacts]
    assert [file.turn_id for file in listed] == [first.row.id, first.row.id, third.row.id]


async def test_artifacts_of_a_turn_that_two_daemons_ended_are_kept_once(site: FakeSite) -> None:
    display = "/workspace/output/display"
    async with site.daemon() as daemon:
        real = site.store.turns.end

        async def never(*_args: object, **_more: object) -> None:
            await asyncio.Event().wait()

        site.store.turns.end = never  # type: ignore[method-assign, assignment]  # cut off there
        await daemon.say(f"write {display}/a.txt one", "m1")

        async def kept() -> bool:
            return bool(await daemon.threads.files(REF))

        await until(kept, "the file is kept")
        site.store.turns.end = real  # type: ignore[method-assign]  # as it was
    async with site.daemon() as daemon:
        turn = await daemon.ended("m1")
        assert len(await daemon.threads.files(REF)) == 1
    assert [file.name for file in turn.artifacts] == ["a.txt"]


async def test_files_that_cannot_be_fetched_are_told_and_do_not_spoil_the_turn(site: FakeSite) -> None:
    async with site.daemon(max_file_bytes=3) as daemon:
        turn = await daemon.talk("write /workspace/output/display/a.txt toolong\nsay done", "m1")
        errors = [event for event in await daemon.events() if event.kind == Kind.ERROR]
    assert (turn.row.stop_reason, turn.artifacts) == ("end_turn", [])
    assert [event.data["code"] for event in errors] == ["too_large"]


async def test_one_file_that_cannot_be_fetched_does_not_hide_the_others(site: FakeSite) -> None:
    display = "/workspace/output/display"
    async with site.daemon(max_file_bytes=3) as daemon:
        turn = await daemon.talk(f"write {display}/a 1\nwrite {display}/b toolong\nwrite {display}/c 2", "m1")
        errors = [event for event in await daemon.events() if event.kind == Kind.ERROR]
    assert [file.name for file in turn.artifacts] == ["a", "c"]
    assert [event.data["code"] for event in errors] == ["too_large"]
    assert "b" in str(errors[0].data["message"])


async def test_all_files_of_a_turn_have_bounds(site: FakeSite) -> None:
    """A file with holes takes no room in a sandbox, and as much as it says here."""
    display = "/workspace/output/display"
    async with site.daemon(max_file_bytes=4) as daemon:
        turn = await daemon.talk("\n".join(f"write {display}/{name} {name * size}" for name, size in FOUR_FILES), "m1")
        errors = [event for event in await daemon.events() if event.kind == Kind.ERROR]
        assert [file.name for file in turn.artifacts] == ["a", "b", "d"]
        assert [str(event.data["message"]).partition(": ")[2] for event in errors] == [
            "c: the files of one turn have 8 bytes at most"
        ]
        assert [file.name for file in (await daemon.talk("say more", "m2")).artifacts] == ["c"], "there is room again"


async def test_files_fetched_before_the_time_was_up_are_kept(site: FakeSite) -> None:
    display = "/workspace/output/display"
    async with site.daemon(collect_seconds=1.0) as daemon:
        real = daemon.threads._files._fetch

        async def slow(session_id: str, path: str, *more: object) -> object:
            if path.endswith("/b"):
                await asyncio.Event().wait()
            return await real(session_id, path, *more)  # type: ignore[arg-type]  # passed on as they came

        daemon.threads._files._fetch = slow  # type: ignore[method-assign, assignment]  # held there
        turn = await daemon.talk(f"write {display}/a 1\nwrite {display}/b 2", "m1")
        errors = [event for event in await daemon.events() if event.kind == Kind.ERROR]
    assert [file.name for file in turn.artifacts] == ["a"]
    assert len(errors) == 1


async def test_new_files_are_found_behind_any_number_of_old_ones(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    display = "/workspace/output/display"
    monkeypatch.setattr(files, "_PAGE", 2)
    monkeypatch.setattr(files, "_SKEW_SECONDS", -3600.0)  # those of the first turn are certainly old
    monkeypatch.setattr(files, "MAX_ARTIFACTS", 5)
    async with site.daemon() as daemon:
        first = await daemon.talk("\n".join(f"write {display}/{name} 1" for name in "abcde"), "m1")
        second = await daemon.talk("\n".join(f"write {display}/{name} 1" for name in "vwxyz"), "m2")
        third = await daemon.talk("\n".join(f"write {display}/{name} 1" for name in "ghijklm"), "m3")
        errors = [event for event in await daemon.events() if event.kind == Kind.ERROR]
    assert [file.name for file in first.artifacts] == list("abcde")
    assert [file.name for file in second.artifacts] == list("vwxyz")
    assert [file.name for file in third.artifacts] == list("ghijk")
    assert len(errors) == 1 and "too many" in str(errors[0].data["message"])


async def test_an_upload_that_is_missing_on_this_host_fails_the_turn_with_a_reason(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        file = await daemon.threads.upload(REF, "data.csv", pieces(b"1"))
        for path in (site.root / "files").rglob("fil_*"):
            path.unlink()
        await daemon.say("attachments", "m1", attachments=[file.id])
        turn = await daemon.ended("m1")
    assert (turn.row.stop_reason, (turn.row.error or {})["code"]) == ("error", "file_not_found")
    assert len(site.agents.ran) == 0


async def test_an_upload_that_is_cancelled_writes_nowhere_else(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptor is closed when the thread that writes to it has ended: its number is used again."""
    began, go, ended = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(descriptor: int, _piece: bytes, _digest: object) -> None:
        loop.call_soon_threadsafe(began.set)
        go.wait(10)
        os.fstat(descriptor)  # raises if it is closed
        ended.set()

    monkeypatch.setattr(files, "_append", slow)
    async with site.daemon() as daemon:
        upload = asyncio.create_task(daemon.threads.upload(REF, "a", pieces(b"1")))
        await asyncio.wait_for(began.wait(), 10)
        upload.cancel()
        await linger(0.1)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await upload
        assert ended.is_set()
