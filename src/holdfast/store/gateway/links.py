"""Rows of links, of the visits that came of them, and of one-use tickets for WebSockets.

No secret is here: only the hash of each.
"""

from collections.abc import Sequence
from dataclasses import asdict

import sqlalchemy as sa

from holdfast.errors import Conflict, LinkNotFound
from holdfast.records.gateway import LinkRow, VisitRow
from holdfast.records.machine import Status
from holdfast.store.database.database import Database
from holdfast.store.gateway.tables import links, tickets, visits
from holdfast.store.gateway.tunnels import prune as prune_tunnels
from holdfast.store.tables import sessions

_THERE = sa.select(sessions.c.id).where(sessions.c.status != Status.DESTROYED)


class LinkStore:
    """Links, visits and tickets. Errors are those of ``SessionStore``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- links ---------------------------------------------------------------------------------------------------------

    async def add(self, row: LinkRow, *, most: int) -> None:
        """Add a link. Raises ``Conflict`` if the session has ``most`` of them."""

        def work(connection: sa.Connection) -> None:
            count = sa.select(sa.func.count()).select_from(links).where(links.c.session_id == row.session_id)
            if (connection.scalar(count) or 0) >= most:
                raise Conflict(f"the session has {most} links already; revoke some, or wait until they expire")
            connection.execute(sa.insert(links).values(asdict(row)))

        await self._database.write(work)

    async def of_session(self, session_id: str) -> list[LinkRow]:
        """Return the links of a session, oldest first."""
        query = sa.select(links).where(links.c.session_id == session_id).order_by(links.c.created_at, links.c.id)

        def work(connection: sa.Connection) -> list[LinkRow]:
            return [LinkRow(**found._mapping) for found in connection.execute(query)]

        return await self._database.read(work)

    async def public(self, secret_hash: str) -> LinkRow | None:
        """Return the public link with this secret."""
        query = sa.select(links).where(links.c.secret_hash == secret_hash, links.c.public)

        def work(connection: sa.Connection) -> LinkRow | None:
            found = connection.execute(query).one_or_none()
            return None if found is None else LinkRow(**found._mapping)

        return await self._database.read(work)

    async def revoke(self, session_id: str, id: str) -> None:
        """Remove a link, and lock out who came in by it. Raises ``LinkNotFound``."""

        def work(connection: sa.Connection) -> None:
            removed = sa.delete(links).where(links.c.session_id == session_id, links.c.id == id)
            if not connection.execute(removed).rowcount:
                raise LinkNotFound("the session has no link with that id; GET …/links shows those there are")
            connection.execute(sa.delete(visits).where(visits.c.link_id == id))

        await self._database.write(work)

    # -- visits --------------------------------------------------------------------------------------------------------

    async def is_link(self, secret_hash: str) -> bool:
        """Say whether there is a link with this secret, whatever has become of it."""
        query = sa.select(links.c.id).where(links.c.secret_hash == secret_hash)
        return await self._database.read(lambda connection: connection.execute(query).first() is not None)

    async def redeem(
        self, secret_hash: str, *, session_id: str, label: str, visit_id: str, now: float, until: float
    ) -> VisitRow | None:
        """Use a private link, once, and begin a visit; None if it is no link to this place that can still be used."""
        right = sa.and_(
            links.c.secret_hash == secret_hash,
            links.c.session_id == session_id,
            links.c.label == label,
            links.c.public.is_(False),
            links.c.used_at.is_(None),
            links.c.expires_at > now,
        )

        def work(connection: sa.Connection) -> VisitRow | None:
            used = connection.execute(sa.update(links).where(right).values(used_at=now).returning(links)).one_or_none()
            if used is None:
                return None
            visit = VisitRow(
                id=visit_id,
                session_id=session_id,
                label=label,
                link_id=used.id,
                key_id=used.key_id,
                visitor=used.name or used.id,
                created_at=now,
                expires_at=until,
            )
            connection.execute(sa.insert(visits).values(asdict(visit)))
            return visit

        return await self._database.write(work)

    async def begin_visit(self, row: VisitRow, *, most: int) -> None:
        """Add a visit. Of those of the session that came by no link, the newest ``most`` stay."""
        mine = (visits.c.session_id == row.session_id, visits.c.link_id.is_(None))
        newest = sa.select(visits.c.id).where(*mine).order_by(visits.c.created_at.desc(), visits.c.id).limit(most)

        def work(connection: sa.Connection) -> None:
            connection.execute(sa.insert(visits).values(asdict(row)))
            count = connection.scalar(sa.select(sa.func.count()).select_from(visits).where(*mine))
            if (count or 0) > most:
                kept = connection.scalars(newest).all()
                connection.execute(sa.delete(visits).where(*mine, visits.c.id.not_in(kept)))

        await self._database.write(work)

    async def visit(self, id: str) -> VisitRow | None:
        query = sa.select(visits).where(visits.c.id == id)

        def work(connection: sa.Connection) -> VisitRow | None:
            found = connection.execute(query).one_or_none()
            return None if found is None else VisitRow(**found._mapping)

        return await self._database.read(work)

    async def prolong(self, moments: Sequence[tuple[str, float]]) -> None:
        """Set (id, expires_at) of many visits; one that has ended meanwhile is left alone."""
        batch = [{"b_id": id, "b_until": until} for id, until in sorted(moments)]
        if batch:
            await self._database.write(lambda connection: connection.execute(_PROLONG, batch))

    # -- tickets -------------------------------------------------------------------------------------------------------

    async def add_ticket(self, id: str, *, key_id: str, expires_at: float) -> None:
        values = {"id": id, "key_id": key_id, "expires_at": expires_at}
        await self._database.write(lambda connection: connection.execute(sa.insert(tickets).values(values)))

    async def take_ticket(self, id: str, *, now: float) -> str | None:
        """Use a ticket, once: return the id of the key that it stands for."""
        taken = sa.delete(tickets).where(tickets.c.id == id).returning(tickets.c.key_id, tickets.c.expires_at)

        def work(connection: sa.Connection) -> str | None:
            found = connection.execute(taken).one_or_none()
            return found.key_id if found is not None and found.expires_at > now else None

        return await self._database.write(work)

    # -- cleaning up ---------------------------------------------------------------------------------------------------

    async def prune(self, *, now: float) -> None:
        """Remove what has expired, and what belongs to sessions that are gone."""

        def work(connection: sa.Connection) -> None:
            prune_tunnels(connection)
            for table in (visits, links):
                connection.execute(sa.delete(table).where(table.c.session_id.not_in(_THERE)))
            connection.execute(sa.delete(visits).where(visits.c.expires_at <= now))
            connection.execute(sa.delete(tickets).where(tickets.c.expires_at <= now))
            in_use = sa.exists().where(visits.c.link_id == links.c.id)
            connection.execute(sa.delete(links).where(links.c.expires_at <= now, ~in_use))

        await self._database.write(work)


_PROLONG = (
    sa.update(visits)
    .where(visits.c.id == sa.bindparam("b_id"))
    .values(expires_at=sa.bindparam("b_until", type_=sa.Double))
)
