"""OpenAI's responses."""

from holdfast.broker.dialects.dialect import Dialect
from holdfast.broker.dialects.openai import error_body
from holdfast.broker.dialects.responses.answers import ResponsesReader, ResponsesWriter, error_event
from holdfast.broker.dialects.responses.questions import read, write

RESPONSES = Dialect(read, write, ResponsesReader, ResponsesWriter, error_body, error_event)
