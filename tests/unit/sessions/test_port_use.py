"""Who is connected to which port, and since when nobody is."""

import asyncio
import math

import pytest

from holdfast.sessions.use.ports import PortUse

pytestmark = pytest.mark.anyio


async def test_it_is_open_until_the_last_one_leaves() -> None:
    use, now = PortUse(), asyncio.get_running_loop().time
    assert not use.is_open("ses_1", 80) and use.left_at("ses_1", 80) == -math.inf
    use.opened("ses_1", 80)
    use.opened("ses_1", 80)
    use.closed("ses_1", 80)
    assert use.is_open("ses_1", 80) and not use.is_open("ses_1", 81) and not use.is_open("ses_2", 80)
    before = now()
    use.closed("ses_1", 80)
    assert not use.is_open("ses_1", 80) and before <= use.left_at("ses_1", 80) <= now()
