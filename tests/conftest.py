"""Fixtures that every suite uses."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Holdfast runs on asyncio; without this, anyio would run each test on trio too."""
    return "asyncio"
