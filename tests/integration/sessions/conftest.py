from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.house import House, open_house


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path) as house:
        yield house
