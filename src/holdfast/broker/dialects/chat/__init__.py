"""OpenAI's chat completions, and those of everybody who has copied them."""

from holdfast.broker.dialects.chat.answers import ChatReader, ChatWriter, error_event
from holdfast.broker.dialects.chat.questions import read, write
from holdfast.broker.dialects.dialect import Dialect
from holdfast.broker.dialects.openai import error_body

CHAT = Dialect(read, write, ChatReader, ChatWriter, error_body, error_event)
