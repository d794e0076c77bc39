import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadInput
from holdfast.vocabulary import thread_keys
from holdfast.vocabulary.thread_keys import check_key, platform_of

IDS = st.text(min_size=1, max_size=20)


def test_the_keys_of_each_platform() -> None:
    assert thread_keys.slack("T1", "C1", "1700000000.1") == "slack:T1:C1:1700000000.1"
    assert thread_keys.slack_dm("T1", "U1") == "slack:T1:dm:U1"
    assert thread_keys.discord("81", "92") == "discord:81:92"
    assert thread_keys.discord_dm("7") == "discord:dm:7"
    assert thread_keys.web("ada@example.org", "42") == "web:ada@example.org:42"
    assert thread_keys.cli("demo") == "cli:demo"


def test_messages_of_one_slack_thread_share_its_key() -> None:
    first = thread_keys.slack("T1", "C1", "1700000000.1")
    assert thread_keys.slack("T1", "C1", "1700000009.9", thread_ts="1700000000.1") == first


def test_ids_with_other_characters() -> None:
    assert thread_keys.web("auth0|1", "a b") == "web:auth0~7C1:a~20b"
    assert thread_keys.web("a:b", "c") != thread_keys.web("a", "b:c")


@given(IDS, IDS, IDS, IDS)
def test_two_conversations_never_share_a_key(user: str, one: str, other: str, two: str) -> None:
    keys = thread_keys.web(user, one), thread_keys.web(other, two)
    assert (keys[0] == keys[1]) == ((user, one) == (other, two))
    assert platform_of(check_key(keys[0])) == "web"


@pytest.mark.parametrize("ids", [("", "x"), ("x", ""), ("x" * 300, "y" * 300)])
def test_what_makes_no_key(ids: tuple[str, str]) -> None:
    with pytest.raises(BadInput):
        thread_keys.web(*ids)
