"""Every recipe that ships is built and does what its page says. It takes minutes: with ``TEST_WHOLE_SUITE=1`` only."""

import os
import shutil

import pytest

from holdfast.images.builds import recipe
from support.api import Api
from support.daemons.daemon import DaemonProcess
from support.machine.recipes import build

PROGRAMS = {
    "base": ["git", "curl", "jq", "less", "ps", "unzip -v", "xz"],
    "python": ["python3", "pip"],
    "node": ["node", "npm", "npx"],
    "agent": ["rg", "ssh -V", "patch", "opencode", "pi", "sandbox-agent", "gh", "bun"],
    "desktop": ["xterm -version", "maim", "xdotool", "xclip -version"],
    "ide": ["code-server", "start-ide"],
    "browser": ["chromium"],
}
"""What docs/images.md promises of each, beside what it builds upon."""


def test_none_is_forgotten() -> None:
    assert recipe.shipped() == list(PROGRAMS)


@pytest.mark.skipif("TEST_WHOLE_SUITE" not in os.environ, reason="it takes minutes; with TEST_WHOLE_SUITE=1")
@pytest.mark.timeout(3600)
def test_each_is_built_and_has_what_it_promises() -> None:
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip("BUILDS ARE NOT TESTED: needs root and the package 'mmdebstrap'")
    with DaemonProcess() as daemon, Api(daemon) as api:
        build(daemon.state_dir, *PROGRAMS)
        for name in PROGRAMS:
            wanted = [program for one in recipe.load(name).chain() for program in PROGRAMS[one.name]]
            session = str(api.create(image=name, limits={"memory_mb": 1024})["id"])
            for program in wanted:
                told = api.exec(session, program if " " in program else f"{program} --version")
                assert (told["exit_code"], bool(told["stdout"] or told["stderr"])) == (0, True), (name, program, told)
            api.destroy(session)
