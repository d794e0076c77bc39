"""The four dialects in which models are asked, each read into a common form and written from it.

A question is a ``talk.Talk``, an answer is a sequence of ``deltas``. Each dialect has four files: how its questions and
its answers are read, and how they are written. The proxy translates with them between models; the demo model speaks by
them. Pure: no I/O, and no knowledge of who asks whom.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.broker.dialects.answer import AnswerReader, AnswerWriter, Head
from holdfast.broker.dialects.chat import answer_reader as chat_answers
from holdfast.broker.dialects.chat import answer_writer as chat_answer
from holdfast.broker.dialects.chat import question_reader as chat_questions
from holdfast.broker.dialects.chat import question_writer as chat_question
from holdfast.broker.dialects.gemini import answer_reader as gemini_answers
from holdfast.broker.dialects.gemini import answer_writer as gemini_answer
from holdfast.broker.dialects.gemini import question_reader as gemini_questions
from holdfast.broker.dialects.gemini import question_writer as gemini_question
from holdfast.broker.dialects.json import Json
from holdfast.broker.dialects.lacks import Target
from holdfast.broker.dialects.messages import answer_reader as messages_answers
from holdfast.broker.dialects.messages import answer_writer as messages_answer
from holdfast.broker.dialects.messages import question_reader as messages_questions
from holdfast.broker.dialects.messages import question_writer as messages_question
from holdfast.broker.dialects.question import Talk
from holdfast.broker.dialects.responses import answer_reader as responses_answers
from holdfast.broker.dialects.responses import answer_writer as responses_answer
from holdfast.broker.dialects.responses import question_reader as responses_questions
from holdfast.broker.dialects.responses import question_writer as responses_question
from holdfast.vocabulary.models import Wire


@dataclass(frozen=True, slots=True)
class Tongue:
    """One dialect, both ways."""

    read: Callable[[Json], Talk]
    """Never fails: what has no place in the common form is in the talk's ``lacks``."""
    write: Callable[[Talk, Target], dict[str, object]]
    """Raises ``CannotCarry`` where this dialect has no words for something."""
    reader: Callable[[str], AnswerReader]
    """By letters and digits that no other answer has: calls without an id get theirs by them."""
    writer: Callable[[Head], AnswerWriter]


TONGUES: Mapping[Wire, Tongue] = {
    Wire.CHAT: Tongue(chat_questions.read, chat_question.write, chat_answers.ChatReader, chat_answer.ChatWriter),
    Wire.RESPONSES: Tongue(
        responses_questions.read,
        responses_question.write,
        responses_answers.ResponsesReader,
        responses_answer.ResponsesWriter,
    ),
    Wire.MESSAGES: Tongue(
        messages_questions.read,
        messages_question.write,
        messages_answers.MessagesReader,
        messages_answer.MessagesWriter,
    ),
    Wire.GEMINI: Tongue(
        gemini_questions.read, gemini_question.write, gemini_answers.GeminiReader, gemini_answer.GeminiWriter
    ),
}

__all__ = ["TONGUES", "Tongue"]
