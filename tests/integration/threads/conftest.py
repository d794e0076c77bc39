from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.threads.threads import Street, open_street


@pytest.fixture
async def street(tmp_path: Path) -> AsyncIterator[Street]:
    async with open_street(tmp_path) as street:
        yield street
