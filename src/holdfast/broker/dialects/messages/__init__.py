"""Anthropic's messages."""

from holdfast.broker.dialects.dialect import Dialect
from holdfast.broker.dialects.messages.answer_reader import MessagesReader
from holdfast.broker.dialects.messages.answer_writer import MessagesWriter, error_body, error_event
from holdfast.broker.dialects.messages.question_reader import read
from holdfast.broker.dialects.messages.question_writer import write

MESSAGES = Dialect(read, write, MessagesReader, MessagesWriter, error_body, error_event)
