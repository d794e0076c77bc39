from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.threads.threads import FakeSite, open_site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[FakeSite]:
    async with open_site(tmp_path) as site:
        yield site
