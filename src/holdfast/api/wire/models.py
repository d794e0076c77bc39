"""The base classes of all requests and replies.

A reply is made from a record: each field is read from the record's attribute of the same name.

::

    class SnapshotOut(Output, record=SnapshotRow):
        id: str
        limits: LimitsOut                                # an Output as well, from the attribute of that name
        created_at: Timestamp                            # from seconds to RFC 3339
        pty: Annotated[bool, From("terminal")]           # an attribute with another name, or of a part: "spec.limits"
        network: Annotated[str, From(by=network_out)]    # whatever a function makes of the attribute

    class TurnOut(Output, record=TurnView, inner="row"): # what a TurnView does not have itself is read from its row

Which attribute gives which field is found out once, when the class is made; an attribute that its record does not have
is an error there and then, and not in a reply.
"""

import dataclasses
import types
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict

from holdfast.api.wire.text import Timestamp, timestamp

_TIME = get_args(Timestamp)[1]
_Convert = Callable[[Any], Any]


class Request(BaseModel):
    """The body of a request. A field that is not known is a mistake, and is refused."""

    model_config = ConfigDict(extra="forbid")


@dataclasses.dataclass(frozen=True, slots=True)
class From:
    """Where a field comes from: which attribute, if not that of its own name, and what makes the field of its value.

    A value that is None stays None.
    """

    path: str | None = None
    by: Callable[[Any], Any] | None = None


class Output(BaseModel):
    """A reply with the same fields as a record, or some of them."""

    _plan: ClassVar[tuple[tuple[str, Callable[[Any], Any], _Convert | None], ...]] = ()

    def __init_subclass__(cls, record: type | None = None, inner: str | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)  # pydantic hands ``record`` to both methods; only the next one can use it

    @classmethod
    def __pydantic_init_subclass__(cls, record: type | None = None, inner: str | None = None, **more: Any) -> None:
        super().__pydantic_init_subclass__(**more)
        if record is not None:
            hints = get_type_hints(cls, include_extras=True)
            cls._plan = tuple(_step(cls, record, inner, name, hints[name]) for name in cls.model_fields)

    @classmethod
    def of(cls, record: Any, **more: Any) -> Self:
        """Return the reply for a record; ``more`` are fields that the record does not have."""
        return cls.model_construct(**cls.fields_of(record), **more)

    @classmethod
    def fields_of(cls, record: Any) -> dict[str, Any]:
        """Return the fields alone, where many are written and to build the model would cost more than all else."""
        values = {}
        for name, read, convert in cls._plan:
            value = read(record)
            values[name] = value if convert is None else convert(value)
        return values


def _step(
    model: type[Output], record: type, inner: str | None, name: str, hint: Any
) -> tuple[str, _Convert, _Convert | None]:
    marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, From)]
    mark = marks[0] if marks else From()
    path = mark.path or name
    if inner is not None and not _has(record, path) and _has(get_type_hints(record)[inner], path):
        path = f"{inner}.{path}"
    if not _has(record, path):
        raise TypeError(f"{model.__name__}.{name}: {record.__name__} has no attribute {path}")
    return name, attrgetter(path), _or_none(mark.by) if mark.by else _conversion(hint)


def _has(record: type, path: str) -> bool:
    first = path.partition(".")[0]
    return hasattr(record, first) or first in record.__annotations__


def _conversion(hint: Any) -> _Convert | None:
    """Return what makes the field's value from the attribute's; None where they are the same."""
    if get_origin(hint) is Annotated:
        return timestamp if _TIME in hint.__metadata__ else _conversion(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        found = [each for each in map(_conversion, get_args(hint)) if each is not None]
        return _or_none(found[0]) if found else None
    if get_origin(hint) is list:
        each = _conversion(get_args(hint)[0])
        return list if each is None else _for_each(each)
    if get_origin(hint) is dict:
        return _as_dict
    return hint.of if isinstance(hint, type) and issubclass(hint, Output) else None


def _or_none(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)


def _for_each(convert: _Convert) -> _Convert:
    return lambda values: [convert(value) for value in values]


def _as_dict(value: Mapping[str, Any]) -> dict[str, Any]:
    return dict(value)
