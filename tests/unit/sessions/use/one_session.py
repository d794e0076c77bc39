"""A session for what uses one: with a link, and nothing else."""

from types import SimpleNamespace
from typing import cast

from contract.store.rows import a_row
from holdfast.link.link import Link
from holdfast.sessions.context import Context
from holdfast.sessions.session import Session
from holdfast.sessions.use.using import Using


class OneSession(Using):
    """Whatever is asked for."""

    def __init__(self, link: Link) -> None:
        context = cast(Context, SimpleNamespace(clock=lambda: 1.0))
        self.session = Session(context, a_row(), link=link)

    def live(self, session_id: str) -> Session | None:
        return self.session

    async def find(self, session_id: str) -> Session:
        return self.session
