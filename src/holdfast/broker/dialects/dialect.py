"""The parts of a dialect. Each dialect has a folder, whose ``__init__`` puts them together."""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.broker.dialects.answer import AnswerWriter, Head
from holdfast.broker.dialects.json import Json
from holdfast.broker.dialects.lacks import Target
from holdfast.broker.dialects.question import CommonQuestion
from holdfast.broker.dialects.reader import AnswerReader


@dataclass(frozen=True, slots=True)
class Dialect:
    """The functions and classes that read and write one dialect."""

    read_question: Callable[[Json], CommonQuestion]
    """Never fails: what has no place in the common form is in the talk's ``lacks``."""
    write_question: Callable[[CommonQuestion, Target], dict[str, object]]
    """Raises ``CannotCarry`` where this dialect has no words for something."""
    reader: Callable[[str], AnswerReader]
    """Made for one answer, with letters and digits that no other answer has."""
    writer: Callable[[Head], AnswerWriter]
    error_body: Callable[[int, str, str], Json]
    """The body of an error with this status, message and code."""
    error_event: Callable[[str], bytes]
    """The event that ends a stream which cannot go on, so that no agent takes a part for the whole."""
