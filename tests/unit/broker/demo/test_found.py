"""Finding the user's own words among what agents put around them."""

import pytest

from holdfast.broker.demo.conversation import Part, Speaker
from holdfast.broker.demo.found import AskedMessage, find, lines_of, own_words


def talk(*said: tuple[Speaker, str]) -> AskedMessage:
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
    asked = talk((Speaker.USER, "run one"), (Speaker.MODEL, "Done."), (Speaker.USER, "say two"))
    assert asked.lines == [("say", "two")]
    assert [part.text for part in asked.before] == ["run one", "Done."]


def test_what_an_agent_adds_after_it_does_not_count() -> None:
    asked = talk((Speaker.USER, "run one"), (Speaker.USER, "<turn_context>say no</turn_context>"))
    assert asked.lines == [("run", "one")]


def test_of_one_message_the_part_that_is_a_script() -> None:
    parts = [Part(Speaker.USER, "say hello", 0), Part(Speaker.USER, "The attached file is at /workspace/in/a.txt", 0)]
    assert find(parts).lines == [("say", "hello")]


def test_history_before_the_message_was_said_before() -> None:
    asked = talk((Speaker.USER, "[Conversation so far]\nagent: the number is 4711\n[End of it]\nrecall 4711"))
    assert asked.lines == [("recall", "4711")]
    assert "the number is 4711" in asked.before[0].text


def test_words_in_the_middle_of_the_work_steer_it() -> None:
    begun = [(Speaker.USER, "run one\nsay two"), (Speaker.CALL, "one"), (Speaker.RESULT, "1")]
    asked = talk(*begun, (Speaker.USER, "to the left"))
    assert asked.lines == [("run", "one"), ("say", "two")]
    assert asked.steered == ["to the left"]
    later = talk(*begun, (Speaker.USER, "to the left"), (Speaker.CALL, "x"), (Speaker.RESULT, "2"))
    assert later.steered == []


def test_words_after_the_end_are_a_message_of_their_own() -> None:
    assert talk((Speaker.USER, "say one"), (Speaker.MODEL, "one"), (Speaker.USER, "to the left")).text == "to the left"
    given_up = talk(
        (Speaker.USER, "run one\nsay two"),
        (Speaker.CALL, ""),
        (Speaker.RESULT, "Aborted by the user"),
        (Speaker.USER, "Hello?"),
    )
    assert given_up.lines == []


def test_nobody_said_anything() -> None:
    assert talk((Speaker.SYSTEM, "say hello")) == AskedMessage("", (), [Part(Speaker.SYSTEM, "say hello", 0)])
