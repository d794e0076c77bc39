"""OpenAI's chat completions, and those of everybody who has copied them."""

from holdfast.broker.dialects.chat.answer_reader import ChatReader
from holdfast.broker.dialects.chat.answer_writer import ChatWriter, error_event
from holdfast.broker.dialects.chat.question_reader import read
from holdfast.broker.dialects.chat.question_writer import write
from holdfast.broker.dialects.dialect import Dialect
from holdfast.broker.dialects.openai import error_body

CHAT = Dialect(read, write, ChatReader, ChatWriter, error_body, error_event)
