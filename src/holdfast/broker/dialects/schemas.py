"""JSON schemas of tools. All dialects take them; Gemini has an older form of its own, besides."""

import re

from holdfast.broker.dialects.json import Json, items, string, table

_NUMBERS = frozenset({"maxItems", "minItems", "maxLength", "minLength", "maxProperties", "minProperties"})
"""Google writes these as text: they have 64 bits there."""
_DIGITS = re.compile(r"[0-9]{1,19}")
_ONLY_THERE = frozenset({"example", "nullable", "propertyOrdering"})


def of_object(schema: Json) -> Json:
    """Return the schema of a tool's arguments, which are an object also where the schema does not say so."""
    if schema.get("type") == "object" and "properties" in schema:
        return schema
    return {"type": "object", "properties": {}, **schema}


def from_openapi(schema: Json) -> Json:
    """Return the schema that Gemini's ``parameters`` mean, which are OpenAPI's: types in capitals, and ``nullable``."""
    found: dict[str, object] = {}
    for name, value in schema.items():
        if name in _ONLY_THERE:
            continue
        if name == "type":
            found[name] = string(value).lower()
        elif name == "properties":
            found[name] = {key: from_openapi(table(one)) for key, one in table(value).items()}
        elif name == "items":
            found[name] = from_openapi(table(value))
        elif name == "anyOf":
            found[name] = [from_openapi(table(one)) for one in items(value)]
        elif name in _NUMBERS and isinstance(value, str) and _DIGITS.fullmatch(value):
            found[name] = int(value)
        else:
            found[name] = value
    return _nullable(found) if schema.get("nullable") is True else found


def _nullable(schema: dict[str, object]) -> Json:
    if "type" in schema:
        schema["type"] = [schema["type"], "null"]
        if isinstance(schema.get("enum"), list):
            schema["enum"] = [*items(schema["enum"]), None]
        return schema
    return {"anyOf": [schema, {"type": "null"}]}
