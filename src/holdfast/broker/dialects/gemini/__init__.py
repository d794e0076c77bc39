"""Google's Gemini."""

from holdfast.broker.dialects.dialect import Dialect
from holdfast.broker.dialects.gemini.answers import GeminiReader, GeminiWriter, error_body, error_event
from holdfast.broker.dialects.gemini.questions import read, write

GEMINI = Dialect(read, write, GeminiReader, GeminiWriter, error_body, error_event)
