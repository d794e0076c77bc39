"""How much of a thread is kept, how fast a turn may tell: a sandbox fills neither the database nor the host's disk."""

import asyncio
from dataclasses import replace

import pytest

from holdfast.errors import TooLarge
from holdfast.vocabulary.turn_events import Kind
from support.threads.threads import REF, STEADY, FakeSite, pieces, text_of

pytestmark = pytest.mark.anyio


async def test_a_conversation_goes_on_and_its_oldest_events_are_forgotten(site: FakeSite) -> None:
    async with site.daemon(events_bytes=29_000) as daemon:
        for number in range(30):
            turn = await daemon.talk(f"say {number} {'x' * 1400}", f"m{number}")
            assert turn.row.stop_reason == "end_turn", turn
        await daemon.threads.janitor.tick()
        row = await daemon.tools.store.threads.by_key(REF.owner, REF.key)
        page = await daemon.threads.events(REF, after=0, limit=1000)
        lines = await daemon.threads.transcript(REF)
        turn = await daemon.talk("recall 0 xxxx", "again")
    assert row.events_bytes <= 29_000
    assert page.pruned == row.pruned_seq > 0
    assert [event.seq for event in page.events] == list(range(page.pruned + 1, page.newest + 1))
    assert [line.text[:2].strip() for line in lines if line.role == "agent"] == [str(number) for number in range(30)]
    assert turn.row.answer == "yes\n"


async def test_a_turn_that_tells_too_many_events_is_ended(site: FakeSite) -> None:
    async with site.daemon(events_count=1000, events_per_second=1e9) as daemon:
        turn = await daemon.talk("\n".join("run echo x" for _ in range(400)), "m1")
        assert (turn.row.stop_reason, "more than 500 events" in str(turn.row.error)) == ("error", True), turn
        assert (await daemon.talk("say hello", "m2")).row.answer == "hello\n"
        events = await daemon.threads.events(REF, after=0, limit=10_000)
    assert events.newest - events.pruned <= 1000


async def test_a_turn_that_tells_too_fast_is_slowed_down_and_nothing_is_lost(site: FakeSite) -> None:
    async with site.daemon(events_per_second=20.0) as daemon:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        script = "\n".join(f"say {number}\nrun echo {number}" for number in range(120))
        turn = await daemon.talk(script, "m1")
        seconds = loop.time() - begun
        events = await daemon.events()
    assert turn.row.stop_reason == "end_turn"
    assert text_of(events, turn.row.id).split() == [str(number) for number in range(120)]
    told = len([event for event in events if event.turn_id == turn.row.id])
    assert seconds > (told - 200 - 200) / 20, (told, seconds)
    assert seconds > 1.0


async def test_files_of_long_ago_make_room_for_new_ones(site: FakeSite) -> None:
    settings = replace(STEADY, files_count=4)
    async with site.daemon(settings) as daemon:
        for number in range(4):
            kept = await daemon.threads.upload(REF, f"{number}.txt", pieces(b"x"))
            await daemon.say("say thanks", f"m{number}", attachments=[kept.id])
            await daemon.ended(f"m{number}")
        for number in range(4, 8):
            await daemon.threads.upload(REF, f"{number}.txt", pieces(b"x"))
        names = [file.name for file in await daemon.threads.files(REF)]
        assert names == ["4.txt", "5.txt", "6.txt", "7.txt"]
        assert len(list((site.root / "files").glob("*/fil_*"))) == 4
        with pytest.raises(TooLarge, match="message"):
            await daemon.threads.upload(REF, "8.txt", pieces(b"x"))


async def test_what_is_pruned_is_told_to_who_follows_from_the_beginning(site: FakeSite) -> None:
    async with site.daemon(events_bytes=20_000) as daemon:
        for number in range(10):
            await daemon.talk(f"say {number} {'x' * 4000}", f"m{number}")
        pruned = (await daemon.threads.events(REF, after=0, limit=1)).pruned
        first = await daemon.wait_for(Kind.FINALIZE)
    assert first.seq > pruned > 0


async def test_artifacts_of_all_turns_have_a_bound_and_come_once(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that had to go are still in the sandbox; they are not brought out again after each turn."""
    monkeypatch.setattr("holdfast.threads.files.files._SKEW_SECONDS", -3600.0)  # as if each was written long ago
    display = "/workspace/output/display"
    async with site.daemon(replace(STEADY, files_count=3)) as daemon:
        told = [
            [file.name for file in (await daemon.talk(f"write {display}/{name} {name}", f"m-{name}")).artifacts]
            for name in "abcdef"
        ]
        quiet = await daemon.talk("say nothing new", "m-quiet")
        names = sorted(file.name for file in await daemon.threads.files(REF))
        changed = await daemon.talk(f"write {display}/a again", "m-again")
        on_disk = list((site.root / "files").glob("*/fil_*"))
    assert told == [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]
    assert quiet.artifacts == []
    assert names == ["d", "e", "f"]
    assert [file.name for file in changed.artifacts] == ["a"]
    assert len(on_disk) == 3
