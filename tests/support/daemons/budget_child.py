"""The model proxy of one daemon, with the books of a database that others use, too; a test may kill it.

``python budget_child.py NODE DATABASE_URL MODEL_SERVER_URL COUNT`` asks so many questions at once for one account,
says the status of each as it is answered, and then ``done``.
"""

import asyncio
import sys
import time
from pathlib import Path

sys.path.pop(0)  # this directory: what is in it must not stand for modules of the standard library
sys.path.insert(0, str(Path(__file__).parents[2]))

from holdfast.broker.accounts import Account, SpendingLimits
from holdfast.store import Store
from holdfast.threads.billing.books import ThreadBooks
from holdfast.threads.settings import AgentDefaults
from holdfast.vocabulary.models import Wire
from support.servers.model_door import model_door
from support.servers.model_server import ModelServer

BUDGET_USD = 0.0035
"""A question may cost a little more than $0.001, so there is room for three."""
PAYER = Account("thr_1", "key_1", "web:default", None, limits=SpendingLimits(spend_usd=BUDGET_USD))


class PayersBooks(ThreadBooks):
    """The real ones, for an account that needs no sandbox."""

    async def account(self, _session_id: str, _tag: str | None, /) -> Account | None:
        return PAYER


def books_of(store: Store, node: str) -> PayersBooks:
    return PayersBooks(store, AgentDefaults(), clock=time.time, node=node)


async def main(node: str, url: str, model_url: str, count: int) -> None:
    server = ModelServer()
    server.url = model_url  # it is another process's
    books = books_of(await Store.open(url), node)
    await books.settle()
    async with model_door(server, Wire.MESSAGES, books=books) as door:

        async def ask() -> None:
            print((await door.ask()).status, flush=True)

        await asyncio.gather(*(ask() for _ in range(count)))
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
