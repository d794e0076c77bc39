"""Turns: begun from the queue, told once, ended once, remembered in the transcript."""

import pytest

from contract.store.threads.talk import THREAD, a_thread, a_turn, delta, finalize, kinds, leased, say
from holdfast.errors import BadInput, StaleRow, TurnNotFound, WrongState
from holdfast.records.threads import MessageStatus, TurnState
from holdfast.store import Store
from holdfast.vocabulary.turn_events import Kind, StopReason, TurnEvent

pytestmark = pytest.mark.anyio

STREAMING = TurnEvent(Kind.STATUS, {"status": "streaming"})
TITLE = TurnEvent(Kind.TITLE, {"title": "A talk"})


async def test_a_turn_begins_with_its_message(store: Store) -> None:
    lease = await leased(store)
    await say(store, "m1", "do it", author="ada", model="big")
    turn = await store.turns.begin(lease, "default", "trn_1", events=[STREAMING])
    assert turn == await store.turns.get("trn_1")
    assert turn is not None
    assert (turn.prompt, turn.model, turn.state, turn.accepted) == ("do it", "big", TurnState.PREPARING, False)
    assert (turn.cursor, turn.attempts, turn.first_seq, turn.last_seq) == ("", 0, 1, 2)
    page = await store.thread_events.page(THREAD, after=0, limit=10)
    assert [event.kind for event in page.events] == [Kind.MESSAGE_CREATE, Kind.STATUS]
    assert page.events[0].turn_id == "trn_1"
    assert page.events[0].data == {
        "message_id": "m1",
        "role": "user",
        "text": "do it",
        "author": "ada",
        "attachments": [],
        "turn_id": "trn_1",
    }
    message = await store.messages.get(THREAD, "m1")
    assert (message.status, message.turn_id, message.seq) == (MessageStatus.IN_TURN, "trn_1", 1)


async def test_an_empty_queue_makes_no_turn(store: Store) -> None:
    lease = await leased(store)
    await say(store, "m1", channel="side")
    assert await store.turns.begin(lease, "default", "trn_1") is None
    with pytest.raises(TurnNotFound):
        await store.turns.get("trn_1")
    assert await kinds(store) == []


@pytest.mark.parametrize(
    ("modes", "turns"),
    [
        ("qq", ["0", "1"]),
        ("ccc", ["0+1+2"]),
        ("qcc", ["0", "1+2"]),
        ("ccqc", ["0+1", "2", "3"]),
        ("scs", ["0", "1", "2"]),
    ],
)
async def test_what_is_collected_is_one_turn(store: Store, modes: str, turns: list[str]) -> None:
    lease = await leased(store)
    names = {"q": "queue", "c": "collect", "s": "steer"}
    for number, mode in enumerate(modes):
        await say(store, f"m{number}", str(number), mode=names[mode])
    prompts: list[str] = []
    while turn := await store.turns.begin(lease, "default", f"trn_{len(prompts)}"):
        prompts.append(turn.prompt.replace("\n\n", "+"))
        assert [row.text for row in await store.messages.of_turn(turn.id)] == turn.prompt.split("\n\n")
        await store.turns.end(lease, turn.id, finalize())
    assert prompts == turns


async def test_a_channel_has_one_turn_at_a_time(store: Store) -> None:
    lease = await leased(store)
    await a_turn(store, lease)
    await say(store, "m2")
    with pytest.raises(WrongState, match="is in turn trn_1; end it before the next"):
        await store.turns.begin(lease, "default", "trn_2")
    side = await a_turn(store, lease, "trn_side", channel="side")  # another channel is free
    assert [turn.id for turn in await store.turns.unfinished(THREAD)] == ["trn_1", side.id]
    await store.threads.set_session(lease, "ses_1")
    working = await store.threads.at_work("ses_1")
    assert working is not None
    assert list(working[1].items()) == [("default", "trn_1"), (side.channel, side.id)]


async def test_a_batch_and_its_cursor_are_one(store: Store) -> None:
    lease = await leased(store)
    await a_turn(store, lease)
    await store.turns.note(lease, "trn_1", state=TurnState.PROMPTED, agent_session_id="a1", attempt=True)
    turn = await store.turns.advance(
        lease, "trn_1", after="", cursor="c1", events=[STREAMING, delta("he"), TITLE], state=TurnState.RUNNING
    )
    assert (turn.cursor, turn.state, turn.accepted, turn.attempts) == ("c1", "running", True, 1)
    assert turn.started_at is not None
    channel = await store.threads.channel(THREAD, "default")
    assert channel is not None
    assert (channel.agent_status, channel.title) == ("streaming", "A talk")
    # Its answer was lost, so it is tried again; nothing is told twice.
    again = await store.turns.advance(lease, "trn_1", after="", cursor="c1", events=[STREAMING, delta("he"), TITLE])
    assert again == turn
    with pytest.raises(StaleRow, match="read on from where you stand"):
        await store.turns.advance(lease, "trn_1", after="", cursor="c2", events=[delta("llo")])
    await store.turns.advance(lease, "trn_1", after="c1", cursor="c2", events=[delta("llo")])
    assert await kinds(store) == [
        Kind.MESSAGE_CREATE,
        Kind.STATUS,
        Kind.TEXT_DELTA,
        Kind.TITLE,
        Kind.TEXT_DELTA,
    ]


@pytest.mark.parametrize("how", ["as its last word", "before", "never"])
async def test_a_status_that_the_agent_has_told_is_not_told_again(store: Store, how: str) -> None:
    """Nor one that has not changed at all."""
    lease = await leased(store)
    await a_turn(store, lease)
    idle = TurnEvent(Kind.STATUS, {"status": "idle"})
    if how != "never":
        await store.turns.note(lease, "trn_1", events=[STREAMING, *([idle] if how == "before" else [])])
    await store.turns.end(lease, "trn_1", finalize(), events=[idle] if how == "as its last word" else [])
    assert (await kinds(store)).count(Kind.STATUS) == (0 if how == "never" else 2)


async def test_a_cursor_may_move_without_events(store: Store) -> None:
    lease = await leased(store)
    await a_turn(store, lease)
    turn = await store.turns.advance(lease, "trn_1", after="", cursor="c9", events=[])
    assert (turn.cursor, turn.last_seq) == ("c9", 1)


async def test_an_event_that_cannot_be_stored_leaves_the_cursor(store: Store) -> None:
    lease = await leased(store)
    await a_turn(store, lease)
    broken = TurnEvent(Kind.TEXT_DELTA, {"text": "no ids"})
    with pytest.raises(ValueError, match="without message_id, part_id"):
        await store.turns.advance(lease, "trn_1", after="", cursor="c1", events=[delta("x"), broken])
    assert (await store.turns.get("trn_1")).cursor == ""
    assert await kinds(store) == ["message.create"]


async def test_any_text_of_an_agent_can_be_stored(store: Store) -> None:
    lease = await leased(store)
    await a_turn(store, lease, text="nul \0 and half a pair \ud83d")
    await store.turns.advance(lease, "trn_1", after="", cursor="1", events=[delta("\0 \udcff 🐙")])
    ended = await store.turns.end(lease, "trn_1", finalize())
    assert ended.answer is not None
    assert ended.answer.endswith("🐙")
    page = await store.thread_events.page(THREAD, after=1, limit=1)
    assert page.events[0].data["text"] == "\0 \ufffd 🐙"


async def test_a_new_agent_session_before_acceptance_starts_the_cursor_anew(store: Store) -> None:
    lease = await leased(store)
    await a_turn(store, lease)
    await store.turns.note(lease, "trn_1", agent_session_id="a1")
    await store.turns.note(lease, "trn_1", accepted=True)
    await store.turns.advance(lease, "trn_1", after="", cursor="c1", events=[])
    assert (await store.turns.note(lease, "trn_1", agent_session_id="a1")).cursor == "c1"
    kept = await store.turns.note(lease, "trn_1", agent_session_id="a2", accepted=False)
    assert (kept.cursor, kept.accepted, kept.agent_session_id) == ("c1", True, "a2")


@pytest.mark.parametrize(
    ("reason", "status", "agent"),
    [
        (StopReason.END_TURN, MessageStatus.DONE, "idle"),
        (StopReason.ERROR, MessageStatus.FAILED, "error"),
        (StopReason.CANCELED, MessageStatus.CANCELED, "idle"),
    ],
)
async def test_a_turn_ends_once_and_for_all(store: Store, reason: StopReason, status: str, agent: str) -> None:
    lease = await leased(store)
    await a_turn(store, lease)
    await store.turns.note(lease, "trn_1", events=[STREAMING])
    error = {"error": {"code": "agent_down", "message": "gone"}} if reason is StopReason.ERROR else {}
    files = TurnEvent(Kind.FILES_CHANGED, {"paths": ["a"]})
    turn = await store.turns.end(
        lease, "trn_1", finalize(reason, **error), events=[delta("bye"), files], artifacts=["f1"], cursor="c9"
    )
    assert (turn.state, turn.stop_reason, turn.answer, turn.cursor) == (TurnState.ENDED, reason.value, "bye", "c9")
    assert (turn.error, list(turn.artifacts)) == (error.get("error"), ["f1"])
    assert (await store.messages.get(THREAD, "msg-trn_1")).status == status
    channel = await store.threads.channel(THREAD, "default")
    assert channel is not None
    assert channel.agent_status == agent
    *_before, status_told, last = await store.thread_events.of_turn("trn_1")
    assert (last.kind, last.seq, last.data["artifacts"]) == (Kind.FINALIZE, turn.last_seq, ["f1"])
    assert (status_told.kind, status_told.data) == (Kind.STATUS, {"status": agent})
    told = await kinds(store)
    assert await store.turns.end(lease, "trn_1", finalize(StopReason.ERROR), events=[delta("x")]) == turn
    for write in [
        store.turns.advance(lease, "trn_1", after="c9", cursor="c10", events=[delta("x")]),
        store.turns.advance(lease, "trn_1", after="c9", cursor="c9", events=[delta("x")]),
        store.turns.note(lease, "trn_1", state=TurnState.RUNNING),
    ]:
        with pytest.raises(WrongState, match="has ended"):
            await write
    assert await kinds(store) == told
    assert await store.turns.unfinished(THREAD) == []


async def test_only_the_end_takes_finalize(store: Store) -> None:
    lease = await leased(store)
    await a_turn(store, lease)
    for write in [
        store.turns.advance(lease, "trn_1", after="", cursor="1", events=[finalize()]),
        store.turns.note(lease, "trn_1", events=[finalize()]),
        store.turns.end(lease, "trn_1", finalize(), events=[finalize()]),
        store.turns.end(lease, "trn_1", STREAMING),
    ]:
        with pytest.raises(BadInput):
            await write


async def test_a_turn_of_another_thread_is_not_found(store: Store) -> None:
    lease = await leased(store)
    await a_turn(store, lease)
    await a_thread(store, 2)
    other = (await store.leases.take("thr_0002", owner="daemon-a", ttl=60)).lease
    with pytest.raises(TurnNotFound):
        await store.turns.advance(other, "trn_1", after="", cursor="1", events=[delta("x")])
    assert await kinds(store, "thr_0002") == []


async def test_a_message_steers_the_running_turn(store: Store) -> None:
    lease = await leased(store)
    await a_turn(store, lease, text="go left")
    await say(store, "m2", "no, right", mode="steer")
    steered = await store.turns.steer(lease, "trn_1", "m2")
    assert steered is not None
    assert (steered.status, steered.turn_id, steered.seq) == (MessageStatus.IN_TURN, "trn_1", 2)
    assert await store.turns.steer(lease, "trn_1", "m2") is None  # only once
    assert await kinds(store) == ["message.create", "message.create"]
    await say(store, "m3", mode="steer")
    await store.turns.note(lease, "trn_1", state="collecting")
    with pytest.raises(WrongState):
        await store.turns.steer(lease, "trn_1", "m3")
    await store.turns.end(lease, "trn_1", finalize(), events=[delta("ok")])
    assert [(line.role, line.text) for line in await store.turns.transcript(THREAD)] == [
        ("user", "go left"),
        ("user", "no, right"),
        ("agent", "ok"),
    ]
    with pytest.raises(WrongState):
        await store.turns.steer(lease, "trn_1", "m3")
    assert (await store.messages.get(THREAD, "m3")).status == MessageStatus.QUEUED


async def test_turns_are_paged_newest_first(store: Store) -> None:
    lease = await leased(store)
    for id in ["trn_c", "trn_a", "trn_b"]:
        await a_turn(store, lease, id)
        await store.turns.end(lease, id, finalize())
    first = await store.turns.page(THREAD, limit=2)
    rest = await store.turns.page(THREAD, limit=2, before=first[-1].first_seq)
    assert [turn.id for turn in [*first, *rest]] == ["trn_b", "trn_a", "trn_c"]


async def _told(store: Store, **options: object) -> list[str]:
    lines = await store.turns.transcript(THREAD, **options)  # type: ignore[arg-type]  # any of them
    return [f"{line.role[0]}: {line.text}" for line in lines]


async def test_the_transcript_is_what_was_said(store: Store) -> None:
    lease = await leased(store)
    for number in (1, 2):
        await a_turn(store, lease, f"trn_{number}", f"question {number}")
        events = [delta("hm", thought=True), delta(f"ans{number}"), delta("wer"), delta("more", "p2")]
        await store.turns.advance(lease, f"trn_{number}", after="", cursor="1", events=events)
        await store.turns.end(lease, f"trn_{number}", finalize())
    await a_turn(store, lease, "trn_side", "aside", channel="side")
    await store.turns.advance(lease, "trn_side", after="", cursor="1", events=[delta("half an ans")])
    await say(store, "queued")
    main = ["u: question 1", "a: ans1wer\n\nmore", "u: question 2", "a: ans2wer\n\nmore"]
    assert await _told(store, channel="default") == main
    assert await _told(store) == [*main, "u: aside", "a: half an ans"]
    assert await _told(store, limit=3) == [main[-1], "u: aside", "a: half an ans"]


async def test_what_is_said_anew_is_said_once(store: Store) -> None:
    """The model was cut off, and asked again: its half answer is no part of the whole one."""
    lease = await leased(store)
    await a_turn(store, lease, "trn_1", "question")
    retried = TurnEvent(Kind.ERROR, {"code": "model_retried", "message": "cut", "discards": ["p2", "p3"]})
    other = TurnEvent(Kind.ERROR, {"code": "other", "message": "no matter"})
    events = [delta("first"), delta("ha", "p2"), delta("lf", "p3"), retried, other, delta("whole", "p4")]
    await store.turns.advance(lease, "trn_1", after="", cursor="1", events=events)
    assert (await store.turns.end(lease, "trn_1", finalize())).answer == "first\n\nwhole"


async def test_what_was_taken_back_is_forgotten(store: Store) -> None:
    lease = await leased(store)
    for id in ["trn_1", "trn_2", "trn_3"]:
        await a_turn(store, lease, id, id, channel="default")
        await store.turns.end(lease, id, finalize())
    await a_turn(store, lease, "trn_side", "aside", channel="side")
    reverted = await store.turns.revert(lease, "trn_2", events=[STREAMING])
    assert [(turn.id, turn.reverted) for turn in reverted] == [("trn_2", True), ("trn_3", True)]
    assert await _told(store) == ["u: trn_1", "u: aside"]
    told = await kinds(store)
    assert await store.turns.revert(lease, "trn_2", events=[STREAMING]) == []
    assert await kinds(store) == told
    with pytest.raises(WrongState, match="turn trn_side has not ended; abort it"):
        await store.turns.revert(lease, "trn_side")
