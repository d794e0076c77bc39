import pytest

from holdfast.callers.types import ROOT, Caller, Scope
from holdfast.errors import BadInput, ThreadNotFound
from holdfast.threads.names import ThreadRef, check_channel, check_message_id
from holdfast.vocabulary.thread_keys import check_key, platform_of

ANN = Caller("key_1", "ann", Scope.USE, "ann", 3)


@pytest.mark.parametrize("key", ["slack:T1:C1:1700000000.1", "dm:U1", "x", "a" * 512, "mail:a+b@c.d", "k=v~1-2_3"])
def test_keys_that_can_be(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize("key", ["", ":x", "a b", "a/b", "a\n", "ä", "a" * 513, "a?b", "a%2Fb", "a\0"])
def test_keys_that_cannot_be(key: str) -> None:
    with pytest.raises(BadInput, match="key"):
        check_key(key)


@pytest.mark.parametrize(
    ("key", "platform"), [("slack:T1", "slack"), ("dm:U1:x", "dm"), ("alone", "other"), ("a:", "a")]
)
def test_the_platform_stands_before_the_first_colon(key: str, platform: str) -> None:
    assert platform_of(key) == platform


def test_channels_and_message_ids() -> None:
    for right in ("review-1", "web:default", "telegram:123"):
        assert check_channel(right) == right
    assert check_message_id("1700000000.1/x?") == "1700000000.1/x?"
    for wrong in ("", "a b", ":b", "a/b", "x" * 129):
        with pytest.raises(BadInput):
            check_channel(wrong)
    for wrong in ("", "a b", "ä", "x" * 201, "a\n"):
        with pytest.raises(BadInput):
            check_message_id(wrong)


def test_whose_thread_it_is() -> None:
    assert ThreadRef.of("dm:1", ANN) == ThreadRef("ann", "dm:1")
    assert ThreadRef.of("dm:1", ANN).max_sessions == 3
    assert ThreadRef.of("dm:1", ROOT, owner="ann") == ThreadRef("ann", "dm:1")
    with pytest.raises(ThreadNotFound):
        ThreadRef.of("dm:1", ANN, owner="bob")
