"""The setting ``docker_host``: where the Docker daemon listens that the docker driver uses."""

from typing import Annotated

from pydantic import AfterValidator


def _on_this_machine(value: str) -> str:
    """Sandboxes reach the daemon by a socket in a directory, which a Docker daemon elsewhere could not show them."""
    if not value.startswith("unix:///"):
        raise ValueError("must be a socket on this machine, such as unix:///var/run/docker.sock")
    return value


LocalSocket = Annotated[str, AfterValidator(_on_this_machine)]
