"""/v1/usage: what calls to models have cost, by thread, by model, by day or by owner."""

from datetime import date
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from holdfast.api.edge.caller import CallerOf
from holdfast.api.settings import ApiSettings
from holdfast.api.threads.common import Owner
from holdfast.api.threads.usage_models import UsageReport
from holdfast.api.wire.common import reply
from holdfast.api.wire.patterns import THREAD_KEY
from holdfast.api.wire.routes import READ, Routes
from holdfast.errors import Forbidden
from holdfast.records.usage import UsageBy
from holdfast.threads.service import ThreadService
from holdfast.vocabulary.thread_keys import MAX_KEY

_Key = Annotated[
    str | None,
    Query(pattern=THREAD_KEY, max_length=MAX_KEY, description="Only of threads of this key"),
]


def router(threads: ThreadService, settings: ApiSettings) -> Routes:
    routes = Routes("usage")
    Limit = Annotated[int, Query(ge=1, le=settings.max_page)]  # noqa: N806 - a type

    @routes.get("/v1/usage", "What models have cost", scope=READ, returns=UsageReport, fails=(422, 503))
    async def get_usage(
        caller: CallerOf,
        by: Annotated[UsageBy, Query(description="What to have a line for")] = UsageBy.THREAD,
        thread: _Key = None,
        owner: Owner = None,
        since: Annotated[date | None, Query(description="The first day, in UTC")] = None,
        until: Annotated[date | None, Query(description="The last day, in UTC")] = None,
        limit: Limit = settings.default_page,
    ) -> Response:
        """Return what calls to models have cost, the most expensive first; days come newest first.

        Threads that were deleted are in it. Admins see those of everybody.
        """
        if not caller.sees_all and owner not in (None, caller.owner):
            raise Forbidden(f"only admins see the usage of others; the key {caller.name} is {caller.owner}'s")
        lines, total = await threads.usage(
            by,
            owner=owner if caller.sees_all else caller.owner,
            key=thread,
            since=None if since is None else since.isoformat(),
            until=None if until is None else until.isoformat(),
            limit=limit,
        )
        return reply(UsageReport.of(by, lines, total))

    return routes
