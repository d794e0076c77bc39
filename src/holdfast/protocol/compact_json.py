"""JSON for frame headers, by the C accelerator alone.

``import json`` pulls in ``re`` and ``enum``: 7 ms and 1 MB in every sandbox, for two functions. The accelerator
does all the work anyway; where an interpreter has none, the ordinary module takes its place.
"""

from __future__ import annotations

try:
    from _json import encode_basestring_ascii, make_encoder, make_scanner
except ImportError:  # an interpreter without the accelerator: slower to start, same result
    from json import JSONDecodeError, dumps, loads

    def encode(value: object) -> bytes:
        return dumps(value, separators=(",", ":")).encode()

    def decode(data: bytes) -> object:
        try:
            return loads(data)
        except (JSONDecodeError, RecursionError) as error:
            raise ValueError("not JSON") from error

else:

    class _Scanner:
        """The settings that the C scanner reads from its context."""

        strict = True
        object_hook = None
        object_pairs_hook = None
        parse_float = float
        parse_int = int
        parse_constant = float
        memo: dict[str, str] = {}  # noqa: RUF012 - the scanner clears it after each use

    _scan = make_scanner(_Scanner())  # type: ignore[arg-type]  # any object with these attributes will do

    def _refuse(value: object) -> object:
        raise TypeError(f"{type(value).__name__} does not fit into a frame header")

    _encode = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, True)

    def encode(value: object) -> bytes:
        return "".join(_encode(value, 0)).encode()

    def decode(data: bytes) -> object:
        text = data.decode()
        try:
            value, end = _scan(text, 0)
        except (StopIteration, RecursionError, SystemError) as error:
            # The scanner takes its JSONDecodeError from the module json. While that is not imported, the scanner fails
            # without an exception, and Python raises SystemError instead.
            raise ValueError("not JSON") from error
        if text[end:].strip():
            raise ValueError("something follows the JSON value")
        return value
