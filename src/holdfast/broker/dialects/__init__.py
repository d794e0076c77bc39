"""The four dialects in which models are asked, each read into a common form and written from it.

A question is a ``question.Talk``, an answer is a sequence of ``answer.Delta``. Each dialect has four files: how its
questions and its answers are read, and how they are written. The reader of an answer also says what it has cost, how
it ended and what failed. The proxy reads every answer with them, and translates between models; the demo model speaks
by them. Pure: no I/O, and no knowledge of who asks whom.

Read first: ``question``, ``reader``, ``answer``. The model proxy and the demo model import this package.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.broker.dialects import openai
from holdfast.broker.dialects.answer import AnswerWriter, Head
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
from holdfast.broker.dialects.reader import AnswerReader
from holdfast.broker.dialects.responses import answer_reader as responses_answers
from holdfast.broker.dialects.responses import answer_writer as responses_answer
from holdfast.broker.dialects.responses import question_reader as responses_questions
from holdfast.broker.dialects.responses import question_writer as responses_question
from holdfast.vocabulary.models import Wire


@dataclass(frozen=True, slots=True)
class Dialect:
    """All that is known of one dialect."""

    read_question: Callable[[Json], Talk]
    """Never fails: what has no place in the common form is in the talk's ``lacks``."""
    write_question: Callable[[Talk, Target], dict[str, object]]
    """Raises ``CannotCarry`` where this dialect has no words for something."""
    reader: Callable[[str], AnswerReader]
    """By letters and digits that no other answer has."""
    writer: Callable[[Head], AnswerWriter]
    error_body: Callable[[int, str, str], Json]
    """Of an error with this status, message and code."""
    error_event: Callable[[str], bytes]
    """Ends a stream which cannot go on, so that nobody takes what there is for all of it."""


DIALECTS: Mapping[Wire, Dialect] = {
    Wire.CHAT: Dialect(
        chat_questions.read,
        chat_question.write,
        chat_answers.ChatReader,
        chat_answer.ChatWriter,
        openai.error_body,
        chat_answer.error_event,
    ),
    Wire.RESPONSES: Dialect(
        responses_questions.read,
        responses_question.write,
        responses_answers.ResponsesReader,
        responses_answer.ResponsesWriter,
        openai.error_body,
        responses_answer.error_event,
    ),
    Wire.MESSAGES: Dialect(
        messages_questions.read,
        messages_question.write,
        messages_answers.MessagesReader,
        messages_answer.MessagesWriter,
        messages_answer.error_body,
        messages_answer.error_event,
    ),
    Wire.GEMINI: Dialect(
        gemini_questions.read,
        gemini_question.write,
        gemini_answers.GeminiReader,
        gemini_answer.GeminiWriter,
        gemini_answer.error_body,
        gemini_answer.error_event,
    ),
}

__all__ = ["DIALECTS", "Dialect"]
