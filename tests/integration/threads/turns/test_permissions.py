"""Rules that a thread's agent cannot keep end the turn, before it is asked anything."""

import pytest

from holdfast.agents.base import Abilities
from holdfast.records.threads import NewMessage
from holdfast.threads.types import ThreadOptions
from support.threads.threads import REF, FakeSite

pytestmark = pytest.mark.anyio

RULES = ThreadOptions(permissions=["deny bash:rm *"])


async def test_a_rule_that_nobody_would_keep_ends_the_turn(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.threads.send(REF, NewMessage("m1", "say x"), RULES)
        turn = await daemon.ended("m1")
        assert turn.row.error is not None and turn.row.error["code"] == "agent_unsupported"
        assert site.agents.ran == []


async def test_one_that_the_agent_keeps_is_left_to_it(site: FakeSite) -> None:
    site.abilities = Abilities(permissions=("bash",))
    async with site.daemon() as daemon:
        await daemon.threads.send(REF, NewMessage("m1", "say x"), RULES)
        assert (await daemon.ended("m1")).row.answer == "x\n"
