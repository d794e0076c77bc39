"""The four dialects in which models are spoken to: how an answer is read, and how to refuse one."""

from collections.abc import Mapping

from holdfast.broker.models.dialects.base import Dialect
from holdfast.broker.models.dialects.chat import Chat
from holdfast.broker.models.dialects.gemini import Gemini
from holdfast.broker.models.dialects.messages import Messages
from holdfast.broker.models.dialects.responses import Responses
from holdfast.vocabulary.models import Wire

DIALECTS: Mapping[Wire, Dialect] = {
    Wire.CHAT: Chat(),
    Wire.RESPONSES: Responses(),
    Wire.MESSAGES: Messages(),
    Wire.GEMINI: Gemini(),
}

__all__ = ["DIALECTS", "Dialect"]
