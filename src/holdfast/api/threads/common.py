"""What all routes of threads share: which thread a request is about."""

import re
from typing import Annotated

from fastapi import Depends, Path, Query

from holdfast.api.edge.caller import CallerOf
from holdfast.api.wire.text import Name
from holdfast.errors import FileMissing, NotFound, TurnNotFound
from holdfast.threads.names import ThreadRef
from holdfast.vocabulary.thread_keys import KEY_PATTERN, MAX_KEY

BASE = "/v1/threads/{key}"
MAX_SEQ = 10**18
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEY_SCHEMA = {"pattern": f"^{KEY_PATTERN}$", "maxLength": MAX_KEY}
_WORD = re.compile(r"[!-~]{1,255}")

Owner = Annotated[Name | None, Query(description="For admins: whose thread of that key; else your own")]


async def _ref(
    caller: CallerOf,
    key: Annotated[
        str, Path(description="Your name for it, such as slack:T1:C1:1700000000.1", json_schema_extra=_KEY_SCHEMA)
    ],
    owner: Owner = None,
) -> ThreadRef:
    return ThreadRef.of(key, caller, owner)


async def _turn_id(turn_id: Annotated[str, Path(description="trn_…")]) -> str:
    if not _ID.fullmatch(turn_id):  # never reaches the store
        raise TurnNotFound("there is no turn with that id in this thread")
    return turn_id


async def _file_id(file_id: Annotated[str, Path(description="fil_…")]) -> str:
    if not _ID.fullmatch(file_id):
        raise FileMissing("there is no file with that id in this thread")
    return file_id


async def _message_id(message_id: Annotated[str, Path(description="as you have chosen it")]) -> str:
    if not _WORD.fullmatch(message_id):
        raise NotFound("there is no message with that id in this thread")
    return message_id


async def _question_id(question_id: Annotated[str, Path(description="from the event question")]) -> str:
    if not _WORD.fullmatch(question_id):
        raise NotFound("there is no question with that id in this thread")
    return question_id


Thread = Annotated[ThreadRef, Depends(_ref)]
TurnId = Annotated[str, Depends(_turn_id)]
ThreadFileId = Annotated[str, Depends(_file_id)]
MessageId = Annotated[str, Depends(_message_id)]
QuestionId = Annotated[str, Depends(_question_id)]
After = Annotated[int, Query(ge=0, le=MAX_SEQ, description="From the event after this one; 0: the first")]
