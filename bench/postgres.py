"""An empty Postgres database to measure on: the one that ``HOLDFAST_BENCH_POSTGRES`` names, else one of our own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from bench.plan import Plan

_VARIABLE = "HOLDFAST_BENCH_POSTGRES"


@contextmanager
def empty_database(plan: Plan) -> Iterator[str | None]:
    """Its URL until the end of the block; None, which is said, where there is none to be had."""
    if url := os.environ.get(_VARIABLE):
        yield url
        return
    try:
        from support.servers.postgres import running_postgres  # the tests have one; `make bench` shows them to us
    except ImportError:
        plan.say(f"nothing on Postgres: `make bench` starts one, or {_VARIABLE} names an empty database")
        yield None
        return
    with running_postgres() as server:
        if server is None:
            plan.say(f"nothing on Postgres: install the package postgresql, or let {_VARIABLE} name an empty database")
            yield None
            return
        server.create("bench")
        yield server.url("bench")
