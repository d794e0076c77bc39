"""Finding the user's own words among what agents put around them."""

import pytest

from holdfast.broker.demo.conversation import Part, Role
from holdfast.broker.demo.found import Asked, find, lines_of, own_words


def talk(*said: tuple[Role, str]) -> Asked:
    return find([Part(role, text, number) for number, (role, text) in enumerate(said)])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("say hello", "say hello"),
        ("<system-reminder>\nsay nothing\n</system-reminder>\nsay hello", "say hello"),
        ("say hello\n\n<environment_context>\n  <cwd>/w</cwd>\n</environment_context>", "say hello"),
        ("[Conversation so far]\nuser: say no\n[End of the conversation so far]\n\nsay hello", "say hello"),
        ("<system-reminder>only this</system-reminder>", ""),
        ("say hello to a.txt\n\n<attachments>\n- /workspace/uploads/f1/a.txt\n</attachments>", "say hello to a.txt"),
        ("write page.html <b>bold</b>", "write page.html <b>bold</b>"),
    ],
)
def test_what_agents_add_is_taken_away(text: str, words: str) -> None:
    assert own_words(text)[1] == words


def test_a_text_with_any_other_line_is_no_script() -> None:
    assert lines_of("say hello\n\nrun ls") == [("say", "hello"), ("run", "ls")]
    assert lines_of("say hello\nplease") == []
    assert lines_of("") == []


def test_only_the_last_message_counts() -> None:
    asked = talk((Role.USER, "run one"), (Role.MODEL, "Done."), (Role.USER, "say two"))
    assert asked.lines == [("say", "two")]
    assert [part.text for part in asked.before] == ["run one", "Done."]


def test_what_an_agent_adds_after_it_does_not_count() -> None:
    asked = talk((Role.USER, "run one"), (Role.USER, "<turn_context>say no</turn_context>"))
    assert asked.lines == [("run", "one")]


def test_of_one_message_the_part_that_is_a_script() -> None:
    parts = [Part(Role.USER, "say hello", 0), Part(Role.USER, "The attached file is at /workspace/in/a.txt", 0)]
    assert find(parts).lines == [("say", "hello")]


def test_history_before_the_message_was_said_before() -> None:
    asked = talk((Role.USER, "[Conversation so far]\nagent: the number is 4711\n[End of it]\nrecall 4711"))
    assert asked.lines == [("recall", "4711")]
    assert "the number is 4711" in asked.before[0].text


def test_words_in_the_middle_of_the_work_steer_it() -> None:
    begun = [(Role.USER, "run one\nsay two"), (Role.CALL, "one"), (Role.RESULT, "1")]
    asked = talk(*begun, (Role.USER, "to the left"))
    assert asked.lines == [("run", "one"), ("say", "two")]
    assert asked.steered == ["to the left"]
    later = talk(*begun, (Role.USER, "to the left"), (Role.CALL, "x"), (Role.RESULT, "2"))
    assert later.steered == []


def test_words_after_the_end_are_a_message_of_their_own() -> None:
    assert talk((Role.USER, "say one"), (Role.MODEL, "one"), (Role.USER, "to the left")).text == "to the left"
    given_up = talk(
        (Role.USER, "run one\nsay two"), (Role.CALL, ""), (Role.RESULT, "Aborted by the user"), (Role.USER, "Hello?")
    )
    assert given_up.lines == []


def test_nobody_said_anything() -> None:
    assert talk((Role.SYSTEM, "say hello")) == Asked("", (), [Part(Role.SYSTEM, "say hello", 0)])
