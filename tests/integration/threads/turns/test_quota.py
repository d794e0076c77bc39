"""How much of a thread is kept, how fast a turn may tell: a sandbox fills neither the database nor the host's disk."""

import asyncio
from dataclasses import replace

import pytest

from holdfast.errors import TooLarge
from holdfast.vocabulary.turn_events import Kind
from support.threads.threads import REF, STEADY, Street, pieces, text_of

pytestmark = pytest.mark.anyio


async def test_a_conversation_goes_on_and_its_oldest_events_are_forgotten(street: Street) -> None:
    async with street.daemon(events_bytes=29_000) as desk:
        for number in range(30):
            turn = await desk.talk(f"say {number} {'x' * 1400}", f"m{number}")
            assert turn.row.stop_reason == "end_turn", turn
        await desk.threads.janitor.tick()
        row = await desk.tools.store.threads.by_key(REF.owner, REF.key)
        page = await desk.threads.events(REF, after=0, limit=1000)
        lines = await desk.threads.transcript(REF)
        turn = await desk.talk("recall 0 xxxx", "again")
    assert row.events_bytes <= 29_000
    assert page.pruned == row.pruned_seq > 0
    assert [event.seq for event in page.events] == list(range(page.pruned + 1, page.newest + 1))
    assert [line.text[:2].strip() for line in lines if line.role == "agent"] == [str(number) for number in range(30)]
    assert turn.row.answer == "yes\n"


async def test_a_turn_that_tells_too_many_events_is_ended(street: Street) -> None:
    async with street.daemon(events_count=1000, events_per_second=1e9) as desk:
        turn = await desk.talk("\n".join("run echo x" for _ in range(400)), "m1")
        assert (turn.row.stop_reason, "more than 500 events" in str(turn.row.error)) == ("error", True), turn
        assert (await desk.talk("say hello", "m2")).row.answer == "hello\n"
        events = await desk.threads.events(REF, after=0, limit=10_000)
    assert events.newest - events.pruned <= 1000


async def test_a_turn_that_tells_too_fast_is_slowed_down_and_nothing_is_lost(street: Street) -> None:
    async with street.daemon(events_per_second=20.0) as desk:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        script = "\n".join(f"say {number}\nrun echo {number}" for number in range(120))
        turn = await desk.talk(script, "m1")
        seconds = loop.time() - begun
        events = await desk.events()
    assert turn.row.stop_reason == "end_turn"
    assert text_of(events, turn.row.id).split() == [str(number) for number in range(120)]
    told = len([event for event in events if event.turn_id == turn.row.id])
    assert seconds > (told - 200 - 200) / 20, (told, seconds)
    assert seconds > 1.0


async def test_files_of_long_ago_make_room_for_new_ones(street: Street) -> None:
    settings = replace(STEADY, files_count=4)
    async with street.daemon(settings) as desk:
        for number in range(4):
            kept = await desk.threads.upload(REF, f"{number}.txt", pieces(b"x"))
            await desk.say("say thanks", f"m{number}", attachments=[kept.id])
            await desk.ended(f"m{number}")
        for number in range(4, 8):
            await desk.threads.upload(REF, f"{number}.txt", pieces(b"x"))
        names = [file.name for file in await desk.threads.files(REF)]
        assert names == ["4.txt", "5.txt", "6.txt", "7.txt"]
        assert len(list((street.root / "files").glob("*/fil_*"))) == 4
        with pytest.raises(TooLarge, match="message"):
            await desk.threads.upload(REF, "8.txt", pieces(b"x"))


async def test_what_is_pruned_is_told_to_who_follows_from_the_beginning(street: Street) -> None:
    async with street.daemon(events_bytes=20_000) as desk:
        for number in range(10):
            await desk.talk(f"say {number} {'x' * 4000}", f"m{number}")
        pruned = (await desk.threads.events(REF, after=0, limit=1)).pruned
        first = await desk.wait_for(Kind.FINALIZE)
    assert first.seq > pruned > 0


async def test_artifacts_of_all_turns_have_a_bound_and_come_once(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that had to go are still in the sandbox; they are not brought out again after each turn."""
    monkeypatch.setattr("holdfast.threads.files.files._SKEW_SECONDS", -3600.0)  # as if each was written long ago
    display = "/workspace/output/display"
    async with street.daemon(replace(STEADY, files_count=3)) as desk:
        told = [
            [file.name for file in (await desk.talk(f"write {display}/{name} {name}", f"m-{name}")).artifacts]
            for name in "abcdef"
        ]
        quiet = await desk.talk("say nothing new", "m-quiet")
        names = sorted(file.name for file in await desk.threads.files(REF))
        changed = await desk.talk(f"write {display}/a again", "m-again")
        on_disk = list((street.root / "files").glob("*/fil_*"))
    assert told == [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]
    assert quiet.artifacts == []
    assert names == ["d", "e", "f"]
    assert [file.name for file in changed.artifacts] == ["a"]
    assert len(on_disk) == 3
