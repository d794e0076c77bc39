"""A running API to talk to."""

from collections.abc import AsyncIterator, Iterator

import pytest

from fakes.api_server import RunningApi, running_api
from holdfast.sdk import Client


@pytest.fixture
def api() -> Iterator[RunningApi]:
    with running_api() as running:
        yield running


@pytest.fixture
async def client(api: RunningApi) -> AsyncIterator[Client]:
    async with Client(api.url, api.key) as client:
        yield client
