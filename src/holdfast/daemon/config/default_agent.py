"""Which agent threads have that name none, where the configuration does not say."""

import os
import shutil

import structlog

from holdfast.agents.known import IMAGE, KNOWN
from holdfast.agents.supervisor.launch import AGENT_BIN
from holdfast.daemon.config.config import Config
from holdfast.errors import HoldfastError
from holdfast.images.store import ImageStore

log = structlog.get_logger(__name__)

FAVOURITE = "pi"
"""The smallest and quickest of those that ask before they act, and speak every dialect."""
PLAIN = "scripted"
_HOST = "host"
_PATH = "/usr/local/bin:/usr/bin:/bin"


def default_agent(config: Config, images: ImageStore | None = None, *, isolated: bool) -> str | None:
    """The one that is set; else a real one, if new sandboxes have it; else what needs nothing and says so.

    ``isolated``: whether sandboxes have a port of their own, which is the way to models.
    """
    if config.default_agent is not None:
        return config.default_agent
    if FAVOURITE in config.agents and isolated:
        if is_there(FAVOURITE, config.default_image, images):
            return FAVOURITE
        if PLAIN in config.agents:
            log.warning(
                "agents.default",
                agent=PLAIN,
                meaning="threads that name no agent talk to a script, and not to a model",
                remedy=f"{_remedy(config.default_image)}, and start the daemon again; or set default_agent",
            )
    return PLAIN if PLAIN in config.agents else next(iter(config.agents), None)


def _remedy(image: str) -> str:
    if image == _HOST:
        return f"run `holdfast agents install {FAVOURITE}`"
    return f"have {FAVOURITE} in the image {image}, or set default_image: `holdfast image build {IMAGE}` makes one"


def is_there(agent: str, image: str, images: ImageStore | None) -> bool:
    """Whether sandboxes of an image have an agent's program, as far as that can be told from outside."""
    program = KNOWN[agent].program
    if program is None:
        return True
    if image == _HOST:
        return os.access(f"{AGENT_BIN}/{program}", os.X_OK) or shutil.which(program, path=_PATH) is not None
    if images is None:
        return False
    try:
        root = images.root_of(image).layout
    except HoldfastError:  # it is not there yet, or not of this kind
        return False
    return any(os.path.lexists(root / directory / program) for directory in ("usr/local/bin", "usr/bin"))
