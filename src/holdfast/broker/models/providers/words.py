"""What an error of a provider says. It stands at the same place in all dialects."""

from collections.abc import Mapping

from pydantic_core import from_json, to_json

from holdfast.broker.dialects.json import table, tables


def words_of(body: bytes) -> str:
    """Empty where it says nothing."""
    return str(_error(_parsed(body)).get("message") or "")


def with_more(body: bytes, more: str) -> bytes:
    """The same error with this at the end of its message; as it is, if it has none."""
    told = _parsed(body)
    error = _error(told)
    if not isinstance(error, dict) or not error.get("message"):
        return body
    error["message"] = f"{error['message']}{more}"
    return to_json(told)


def _parsed(body: bytes) -> object:
    try:
        return from_json(body)
    except ValueError:
        return None


def _error(told: object) -> Mapping[str, object]:
    """Gemini's streams are lists."""
    return table((tables(told) or [table(told)])[0].get("error"))
