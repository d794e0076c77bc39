"""The hosts that run a daemon on this database, and since when each has been silent."""

from holdfast.store.database import Database
from holdfast.store.thread_rows import NodeRow


class NodeStore:
    """The nodes. Raises what ``ThreadStore`` raises when the database fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def heartbeat(self, id: str, *, started: bool = False) -> NodeRow:
        """This node is alive now. ``started``: its daemon has just begun."""
        raise NotImplementedError

    async def all(self) -> list[NodeRow]:
        """Every node there ever was, by id."""
        raise NotImplementedError

    async def dead(self, *, silent_for: float) -> list[NodeRow]:
        """Nodes that have not been heard of for more than so many seconds."""
        raise NotImplementedError

    async def forget(self, id: str, *, silent_for: float) -> bool:
        """Forget a node that is still silent; whether it was."""
        raise NotImplementedError
