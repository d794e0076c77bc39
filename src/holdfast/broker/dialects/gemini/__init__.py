"""Google's Gemini."""

from holdfast.broker.dialects.dialect import Dialect
from holdfast.broker.dialects.gemini.answer_reader import GeminiReader
from holdfast.broker.dialects.gemini.answer_writer import GeminiWriter, error_body, error_event
from holdfast.broker.dialects.gemini.question_reader import read
from holdfast.broker.dialects.gemini.question_writer import write

GEMINI = Dialect(read, write, GeminiReader, GeminiWriter, error_body, error_event)
