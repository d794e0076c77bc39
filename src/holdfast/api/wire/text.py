"""The kinds of text that requests carry, each checked in one place."""

import asyncio
import base64
import binascii
import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, Field

from holdfast.errors import BadInput

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ENV_BYTES = 256 * 1024
METADATA_KEYS = 64
METADATA_BYTES = 16 * 1024
_STEP = 256 * 1024
_NOT_UTF8 = "must be text that can be written as UTF-8"


def encodable(value: str) -> str:
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell but no file or pipe can hold
        raise ValueError(_NOT_UTF8) from None
    return value


async def to_utf8(field: str, value: str) -> bytes:
    """Encode a text that may be long, in steps. No validator has looked at it: that would hold the event loop."""
    parts = []
    try:
        for at in range(0, len(value), _STEP):
            parts.append(value[at : at + _STEP].encode())
            if len(value) > _STEP:
                await asyncio.sleep(0)
    except UnicodeEncodeError:
        raise BadInput(f"{field}: {_NOT_UTF8}") from None
    return b"".join(parts)


def no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not contain a NUL character")
    return encodable(value)


def absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError("must be absolute, starting with /")
    return value


def image_source(value: str) -> str:
    if not value.startswith(("/", "docker://")):
        raise ValueError("must be an absolute path, starting with /, or a reference that begins with docker://")
    return value


def env(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _ENV_NAME.fullmatch(name):
            raise ValueError("a name must consist of letters, digits and _, and not begin with a digit")
        no_nul(text)
    return _bounded(value, ENV_BYTES)


def metadata(value: dict[str, str]) -> dict[str, str]:
    if len(value) > METADATA_KEYS:
        raise ValueError(f"must not have more than {METADATA_KEYS} keys")
    for name, text in value.items():
        no_nul(name)
        no_nul(text)
    return _bounded(value, METADATA_BYTES)


def _bounded(value: dict[str, str], limit: int) -> dict[str, str]:
    if sum(len(name.encode()) + len(text.encode()) for name, text in value.items()) > limit:
        raise ValueError(f"must not be larger than {limit} bytes altogether")
    return value


Text = Annotated[str, AfterValidator(no_nul)]
Name = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(no_nul)]
AbsolutePath = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(no_nul), AfterValidator(absolute)]
ImageSource = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(no_nul), AfterValidator(image_source)]
Env = Annotated[dict[str, str], AfterValidator(env)]
Metadata = Annotated[dict[str, str], AfterValidator(metadata)]
Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


def timestamp(seconds: float) -> str:
    """Return the time as RFC 3339 in UTC, always with six digits so that text order is time order."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def from_base64(text: str | bytes) -> bytes:
    """Decode strictly: a lenient decoder would silently write something else than was meant."""
    if len(text) % 4:  # the strict mode lets some wrong padding pass
        raise ValueError("not valid base64 (the length is not a multiple of four)")
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as exc:  # binascii.Error, or text that is not ASCII
        raise ValueError(f"not valid base64 ({str(exc)[:80]})") from None


def to_base64(data: bytes | memoryview) -> bytes:
    return base64.b64encode(data)
