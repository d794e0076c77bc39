"""The API runs in the process of these tests: its log would be taken for output of the command."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()
