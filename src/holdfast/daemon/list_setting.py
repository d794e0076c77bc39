"""Settings that are lists, which the environment can only give as text."""

import json


def split(value: object) -> object:
    """The environment has only text: a list is written as JSON or with commas."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError('must be a comma-separated list or a JSON list such as ["a", "b"]') from None
    return [item.strip() for item in value.split(",") if item.strip()]
