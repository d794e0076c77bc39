from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.fake_host import FakeHost, open_host


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[FakeHost]:
    async with open_host(tmp_path) as host:
        yield host
