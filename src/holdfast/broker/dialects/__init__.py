"""The four dialects in which models are asked, each read into a common form and written from it.

A question is a ``question.Talk``, an answer is a sequence of ``answer.Delta``. Each dialect has four files: how its
questions and its answers are read, and how they are written. The reader of an answer also says what it has cost, how
it ended and what failed. The proxy reads every answer with them, and translates between models; the demo model writes
its answers with them. Nothing here does I/O.

Read first: ``question``, ``reader``, ``answer``. The model proxy and the demo model import this package.
"""

from collections.abc import Mapping

from holdfast.broker.dialects.chat import CHAT
from holdfast.broker.dialects.dialect import Dialect
from holdfast.broker.dialects.gemini import GEMINI
from holdfast.broker.dialects.messages import MESSAGES
from holdfast.broker.dialects.responses import RESPONSES
from holdfast.vocabulary.models import Wire

DIALECTS: Mapping[Wire, Dialect] = {
    Wire.CHAT: CHAT,
    Wire.RESPONSES: RESPONSES,
    Wire.MESSAGES: MESSAGES,
    Wire.GEMINI: GEMINI,
}

__all__ = ["DIALECTS", "Dialect"]
