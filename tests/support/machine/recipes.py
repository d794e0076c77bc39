"""Images of our own recipes for a daemon of a test: built, which takes minutes, or copied from where they are.

``TEST_IMAGES`` names a state directory that keeps them from one run to the next.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BUILD_SECONDS = 3000


def skip_unless_wanted() -> None:
    """Skip a test that needs built images, except in the long run or where ``TEST_IMAGES`` is set."""
    if "TEST_WHOLE_SUITE" not in os.environ and "TEST_IMAGES" not in os.environ:
        pytest.skip("it builds images, which takes minutes: with TEST_WHOLE_SUITE=1, or TEST_IMAGES=<state directory>")
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip("BUILDS ARE NOT TESTED: needs root and the package 'mmdebstrap'")


def provide(state_dir: Path, *names: str) -> None:
    """Put the images of these recipes into a state directory, which no daemon uses yet."""
    kept = os.environ.get("TEST_IMAGES")
    build(Path(kept) if kept else state_dir, *names)
    if kept:
        images = state_dir / "images"
        images.mkdir(mode=0o711, exist_ok=True)
        link = ["--link"] if Path(kept).stat().st_dev == state_dir.stat().st_dev else []  # nobody changes an image
        for name in names:
            subprocess.run(["cp", "-a", *link, str(Path(kept) / "images" / name), str(images / name)], check=True)


def build(state_dir: Path, *names: str) -> None:
    """Build these recipes by the command line, as an operator would."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    env |= {"HOLDFAST_STATE_DIR": str(state_dir)}
    command = [sys.executable, "-c", "from holdfast.cli.main import main; main()", "image", "build", *names]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=BUILD_SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split() == list(names)
