"""From a recipe to a session: built beside the running daemon by the command line, used, exported, imported again."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from support.api import Api
from support.daemons.daemon import DaemonProcess

RECIPE = """
variant = "extract"
packages = ["busybox-static"]
env = { GREETING = "from the image", OTHER = "image" }
[[files]]
path = "/etc/greeting"
content = "hello"
"""


@pytest.mark.timeout(150)
def test_build_use_export_import(daemon: DaemonProcess, tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip("BUILDS ARE NOT TESTED: needs root and the package 'mmdebstrap'")
    (tmp_path / "greeter.toml").write_text(RECIPE)
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    env |= {"HOLDFAST_URL": daemon.url, "HOLDFAST_API_KEY": daemon.key, "HOLDFAST_STATE_DIR": str(daemon.state_dir)}

    def cli(*arguments: str) -> str:
        program = [sys.executable, "-c", "from holdfast.cli.main import main; main()"]
        done = subprocess.run([*program, *arguments], capture_output=True, text=True, env=env, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert cli("image", "build", str(tmp_path / "greeter.toml")) == "greeter"
    assert json.loads(cli("image", "build", str(tmp_path / "greeter.toml"), "--json"))["cached"] is True
    both = ["image", "build", str(tmp_path / "greeter.toml"), str(tmp_path / "greeter.toml")]
    assert cli(*both).splitlines() == ["greeter", "greeter"]
    assert [one["cached"] for one in json.loads(cli(*both, "--json"))["images"]] == [True, True]
    with pytest.raises(AssertionError, match="--name names one image"):
        cli(*both, "--name", "x")
    with Api(daemon) as api:
        for writable in (False, True):
            made = api.create(image="greeter", writable_root=writable, env={"OTHER": "session"})
            said = api.out(str(made["id"]), "cat /etc/greeting; echo; echo $GREETING, $OTHER; pwd; id -u")
            user = "0" if writable else "1000"
            assert said == f"hello\nfrom the image, session\n/workspace\n{user}"
            api.destroy(str(made["id"]))
    cli("image", "export", "greeter", str(tmp_path / "out.tar"))
    with tarfile.open(tmp_path / "out.tar") as tar:
        assert tar.getmember("./etc/greeting").uid == 0
        assert tar.getmember("./workspace").uid == 1000
    assert cli("image", "import", "greeter:1.1.0", str(tmp_path / "out.tar")) == "greeter:1.1.0"
    with Api(daemon) as api:  # an overlay mount, whose option a colon in the path would break
        tagged = api.create(image="greeter:1.1.0", writable_root=True)
        assert (tagged["image"], api.out(tagged["id"], "cat /etc/greeting")) == ("greeter:1.1.0", "hello")
        assert api.call("DELETE", "/v1/images/greeter:1.1.0").status_code == 409
        api.destroy(tagged["id"])
    rows = [line.split("\t") for line in cli("image", "ls").splitlines()]
    kinds = {row[0]: (row[1], row[4]) for row in rows[1:]}
    assert rows[0] == ["NAME", "KIND", "SIZE", "AGE", "RECIPE", "DIGEST"]
    assert kinds["greeter"][0] == "built" and len(kinds["greeter"][1]) == 12
    assert kinds["greeter:1.1.0"] == ("imported", "-")
    for name in ("greeter", "greeter:1.1.0"):
        assert cli("image", "rm", name) == name
