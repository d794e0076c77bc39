"""What is sent to a webhook, and that the SDK's receiver takes exactly that."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadSignature, Unauthorized
from holdfast.records.events import EventRow
from holdfast.sdk import verify_webhook
from holdfast.sessions.telling.webhook import Webhook, body, delivery_id, headers, retry_seconds, signature

NOW = 1_700_000_000.75
SECRET = "sixteen-characters"
HOOK = Webhook("https://ada:hunter2@example.org:8443/a/b?token=hunter3", SECRET)
EVENT = EventRow(
    seq=7,
    kind="error",
    session_id="ses_1",
    at=NOW,
    data={"status": "error", "reason": "crashed", "error": "naïve ☂\n", "metadata": {"a": "b"}},
)


def test_the_body() -> None:
    assert json.loads(body(EVENT)) == {
        "seq": 7,
        "kind": "error",
        "session_id": "ses_1",
        "at": "2023-11-14T22:13:20.750000Z",
        "data": EVENT.data,
    }
    assert body(EVENT) == body(replace(EVENT))


def test_the_body_of_a_threads_event() -> None:
    told = replace(
        EVENT, kind="thread.question", session_id="", thread_id="thr_1", thread_key="slack:T1", data={"a": 1}
    )
    assert json.loads(body(told)) == {
        "seq": 7,
        "kind": "thread.question",
        "session_id": None,
        "at": "2023-11-14T22:13:20.750000Z",
        "thread_id": "thr_1",
        "thread_key": "slack:T1",
        "data": {"a": 1},
    }
    content = body(told)
    event = verify_webhook(SECRET, headers(HOOK, told, content, NOW), content, now=NOW)
    assert (event.kind, event.session_id, event.thread_id, event.thread_key) == (
        "thread.question",
        None,
        "thr_1",
        "slack:T1",
    )
    assert delivery_id(HOOK, told) != delivery_id(HOOK, replace(told, thread_id="thr_2"))


def test_the_headers() -> None:
    sent = headers(HOOK, EVENT, b"{}", NOW)
    assert sent["Holdfast-Event"] == "error"
    assert sent["Holdfast-Delivery"] == delivery_id(HOOK, EVENT)
    # by hand: printf '1700000000.{}' | openssl dgst -sha256 -hmac sixteen-characters
    known = "t=1700000000,v1=33114115e2e55b04dac5b6803946389aaa860a3fde90def26a5990bbc468687f"
    assert sent["Holdfast-Signature"] == known


def test_a_delivery_keeps_its_id_and_no_other_has_it() -> None:
    others = [
        delivery_id(HOOK, replace(EVENT, seq=8)),
        delivery_id(HOOK, replace(EVENT, session_id="ses_2")),
        delivery_id(replace(HOOK, url="https://example.org/other"), EVENT),
    ]
    mine = delivery_id(replace(HOOK, secret="another-secret-0123", kinds=["error"]), EVENT)
    assert mine == delivery_id(HOOK, EVENT)
    assert len({mine, *others}) == 4


def test_what_may_be_logged_holds_no_secret() -> None:
    assert (HOOK.place, HOOK.host) == ("https://example.org:8443/a/b", "example.org:8443")
    assert "hunter" not in HOOK.place + HOOK.host + HOOK.id
    assert SECRET not in repr(HOOK)


def test_waiting_grows_up_to_a_limit_and_is_never_the_same() -> None:
    spans = [[retry_seconds(failures) for _ in range(50)] for failures in range(1, 40)]
    for failures, span in enumerate(spans, 1):
        longest = min(2.0 ** (failures - 1), 300.0)
        assert all(longest * 0.75 <= seconds <= longest for seconds in span)
        assert len(set(span)) > 1
    assert retry_seconds(10**9) <= 300


def signed(content: bytes, secret: str = SECRET, at: float = NOW) -> dict[str, str]:
    return {"HOLDFAST-signature": signature(secret, int(at), content)}


@given(st.binary(max_size=200), st.text(min_size=1), st.integers(0, 10**12))
def test_what_is_signed_is_recognised_and_nothing_else(content: bytes, secret: str, at: int) -> None:
    """Signed, but no event: that is found out after the signature was found good."""
    try:
        secret.encode()
    except UnicodeEncodeError:
        return
    with pytest.raises(BadSignature, match="is signed, but"):
        verify_webhook(secret, signed(b"[" + content, secret, at), b"[" + content, now=at)
    with pytest.raises(BadSignature, match="not signed with this secret"):
        verify_webhook(secret + "x", signed(content, secret, at), content, now=at)
    with pytest.raises(BadSignature, match="not signed with this secret"):
        verify_webhook(secret, signed(content, secret, at), content + b"x", now=at)


def test_the_event_comes_out_again() -> None:
    event = verify_webhook(SECRET, headers(HOOK, EVENT, body(EVENT), NOW), body(EVENT), now=NOW + 299)
    assert (event.seq, event.kind, event.session_id, event.data) == (7, "error", "ses_1", EVENT.data)
    assert event.at is not None and event.at.timestamp() == NOW


def test_a_secret_that_is_being_changed() -> None:
    """Two signatures in one header: either is enough."""
    content = body(EVENT)
    old, new = signature("the-old-secret-0000", int(NOW), content), signature(SECRET, int(NOW), content)
    both = {"Holdfast-Signature": f"{old},{new.partition(',')[2]}"}
    assert verify_webhook(SECRET, both, content, now=NOW).seq == 7
    assert verify_webhook("the-old-secret-0000", both, content, now=NOW).seq == 7


@pytest.mark.parametrize("late", [301, -302, 10**9])
def test_a_repetition_is_refused(late: float) -> None:
    with pytest.raises(BadSignature, match="clock"):
        verify_webhook(SECRET, signed(body(EVENT)), body(EVENT), now=NOW + late)
    assert verify_webhook(SECRET, signed(body(EVENT)), body(EVENT), 10**10, now=NOW + late).seq == 7


@pytest.mark.parametrize(
    "value",
    [
        *(None, "", "t=", "v1=", "t=1700000000", "v1=00", "t=x,v1=00", "t=1,t=1,v1=00", "t=٣,v1=00", "t=1,v1=é"),
        *("t" * 9999, "t=-1,v1=00", "t=" + "9" * 400 + ",v1=00", ",,,=,=", "t=1700000000;v1=00"),
    ],
)
def test_no_header_is_too_odd(value: str | None) -> None:
    with pytest.raises(BadSignature, match="no Holdfast-Signature header"):
        verify_webhook(SECRET, {} if value is None else {"Holdfast-Signature": value}, b"{}", now=NOW)


def test_the_error_is_an_unauthorized_one() -> None:
    assert issubclass(BadSignature, Unauthorized) and BadSignature.status == 401
