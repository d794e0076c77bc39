"""An address that other machines reach is told, with what to do."""

import pytest

from holdfast.daemon.config.config import Config
from holdfast.daemon.server.exposure import exposure


@pytest.mark.parametrize("listen", ["127.0.0.1:8080", "127.8.0.1:1", "[::1]:8080", "localhost:8080"])
def test_only_this_machine(listen: str) -> None:
    assert exposure(Config(listen=listen)) is None


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:8080", "[::]:8080", "10.0.0.5:80", "box.example:8080", "[fe80::1%eth0]:80"]
)
def test_others_too(listen: str) -> None:
    assert listen in str(exposure(Config(listen=listen)))
