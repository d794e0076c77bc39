"""Anthropic's messages."""

from holdfast.broker.dialects.dialect import Dialect
from holdfast.broker.dialects.messages.answers import MessagesReader, MessagesWriter, error_body, error_event
from holdfast.broker.dialects.messages.questions import read, write

MESSAGES = Dialect(read, write, MessagesReader, MessagesWriter, error_body, error_event)
