"""OpenAI's responses."""

from holdfast.broker.dialects.dialect import Dialect
from holdfast.broker.dialects.openai import error_body
from holdfast.broker.dialects.responses.answer_reader import ResponsesReader
from holdfast.broker.dialects.responses.answer_writer import ResponsesWriter, error_event
from holdfast.broker.dialects.responses.question_reader import read
from holdfast.broker.dialects.responses.question_writer import write

RESPONSES = Dialect(read, write, ResponsesReader, ResponsesWriter, error_body, error_event)
