"""A conversation as pi keeps it."""

import json
import uuid

from holdfast.agents.base import PastMessage
from holdfast.agents.pi.session_file import new_file


def test_history_is_a_chain_of_messages_with_roles_in_turn() -> None:
    said = [
        PastMessage("user", "one"),
        PastMessage("user", "two"),
        PastMessage("agent", " "),
        PastMessage("agent", "three"),
        PastMessage("user", "four"),
    ]
    header, *entries = map(json.loads, new_file(uuid.UUID(int=7), "/w", said, "demo", "demo-1").splitlines())
    assert (header["type"], header["version"], header["id"], header["cwd"]) == (
        "session",
        3,
        str(uuid.UUID(int=7)),
        "/w",
    )
    assert [entry["parentId"] for entry in entries] == [None, *(entry["id"] for entry in entries[:-1])]
    texts = [(entry["message"]["role"], entry["message"]["content"][0]["text"]) for entry in entries]
    assert texts == [("user", "one\n\ntwo"), ("assistant", "three"), ("user", "four")]
    assert entries[1]["message"]["model"] == "demo-1"


def test_without_history_it_is_a_header() -> None:
    assert new_file(uuid.uuid4(), "/w", (), "demo", "demo-1").count(b"\n") == 1
