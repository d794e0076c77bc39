"""Every block of code in README and docs does what it says: shell and Python are run, settings loaded, JSON parsed."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.daemon.config.load import load_config
from support.daemons.daemon import DaemonProcess, unusable_driver
from support.doc_blocks import PAGES, RUN, Block, Reader, acts_on_the_machine, blocks

EVERY = [block for page in PAGES for block in blocks(page)]
MOST_NOT_RUN = 35
"""Each has its reason on the page; more of them want a good one."""


def name(block: Block) -> str:
    return f"{block.page.name}:{block.line}"


@pytest.fixture(scope="module")
def documented() -> Iterator[DaemonProcess]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with DaemonProcess(disk_limit_mb=64, network="none") as process:
        (process.state_dir / "api_key").write_text(process.key)
        yield process


@pytest.fixture
def reader(documented: DaemonProcess, tmp_path: Path) -> Iterator[Reader]:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is missing: apt-get install curl")
    environment = {
        "HOLDFAST_URL": documented.url,
        "HOLDFAST_API_KEY": documented.key,
        "HOLDFAST_STATE_DIR": str(documented.state_dir),  # and not the usual one, whatever a block starts
    }
    here = {"http://127.0.0.1:8080": documented.url, "/var/lib/holdfast": str(documented.state_dir)}
    here |= {"after=1042": "after=1", "--after 1042": "--after 1"}  # a number that this daemon has come to
    here |= {"/srv/images": str(tmp_path), "/srv/backups": str(tmp_path), "forward $id 8080:": "forward $id 0:"}
    here |= {"exe_4a704wr0bpe8zvg015z8czswdm": "$exec_id", "?offset=4": "?offset=0"}
    yield Reader(tmp_path, environment, here, curl)
    with documented.client() as client:
        for key in client.get("/v1/keys").json()["keys"]:
            client.delete(f"/v1/keys/{key['name']}")
        for thread in client.get("/v1/threads").json()["threads"]:
            client.delete(f"/v1/threads/{thread['key']}")
        documented.clear()
        for kind in ("snapshots", "workspaces"):
            for kept in client.get(f"/v1/{kind}").json()[kind]:
                client.delete(f"/v1/{kind}/{kept['id']}")


@pytest.mark.parametrize("language", RUN)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_tells_to_run_works(page: Path, language: str, reader: Reader) -> None:
    found = [block for block in blocks(page) if block.language == language and block.reason is None]
    assert [name(block) for block in found if acts_on_the_machine(block)] == [], "say `not run` before it"
    failed = getattr(reader, {"sh": "shell"}.get(language, language))(found) if found else []
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("block", [one for one in EVERY if one.language == "json"], ids=name)
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("block", [one for one in EVERY if one.language == "yaml" and not one.reason], ids=name)
def test_settings_can_be_set(block: Block, tmp_path: Path) -> None:
    for file in ("soul.md", "team.md"):
        (tmp_path / file).touch()
    settings = tmp_path / "holdfast.yaml"
    settings.write_text(block.text.replace("/etc/holdfast/persona", str(tmp_path)))
    load_config(settings)


def test_what_is_not_run_has_a_reason() -> None:
    spared = [block for block in EVERY if block.reason is not None]
    assert all(len(str(block.reason)) > 10 for block in spared)
    assert len([block for block in spared if block.language in RUN]) <= MOST_NOT_RUN
