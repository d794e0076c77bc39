"""What cannot be carried from one dialect to another: it is told, and never left away in silence."""

from collections.abc import Collection

from holdfast.broker.wires.shape import Json


class CannotCarry(Exception):
    """The message says what: ``the tool web_search, which the provider runs itself``."""


class Lacks:
    """What a question has in it for which there is no common form, collected while it is read."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}

    def note(self, what: str) -> None:
        self._found[what] = None

    def fields(self, data: Json, known: Collection[str], where: str = "") -> None:
        """Notes each field that is not known, unless there is nothing in it."""
        for name, value in data.items():
            if name not in known and value:
                self.note(f"{where}{name}")

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(self._found)
