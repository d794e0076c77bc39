"""A running API to talk to."""

from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast.sdk import Client
from support.api_host import ApiHost, running_api


@pytest.fixture
def api() -> Iterator[ApiHost]:
    with running_api() as running:
        yield running


@pytest.fixture
async def client(api: ApiHost) -> AsyncIterator[Client]:
    async with Client(api.url, api.key) as client:
        yield client
