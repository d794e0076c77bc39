"""A record as the columns of its row."""

from dataclasses import fields
from typing import Any


def columns(record: Any) -> dict[str, Any]:
    """Return the record's fields by name, each as it is; ``dataclasses.asdict`` would take a spec apart as well."""
    return {field.name: getattr(record, field.name) for field in fields(record)}
