"""Images that are made of layers: archives, layouts and a registry on loopback, by the real skopeo and umoci."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import BadInput, ToolMissing, Unavailable
from holdfast.images.store import ImageStore
from holdfast.images.unpack import layers
from holdfast.records.services import SERVICES_LABEL, read_services
from support.daemons.daemon import wait_for
from unit.images.tars import ID_BASE

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(os.geteuid() != 0, reason="umoci gives files to other ids")]


SERVICES = {"web": {"command": "httpd -f -p 8000", "port": 8000, "ready": "/"}}


def run(*argv: object) -> None:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An OCI layout with one image of two layers; the second removes a file of the first."""
    if shutil.which("skopeo") is None or shutil.which("umoci") is None:
        pytest.skip("IMAGES OF LAYERS ARE NOT TESTED: install the packages 'skopeo' and 'umoci'")
    place = tmp_path_factory.mktemp("layers")
    image, bundle = f"{place}/oci:one", place / "bundle"
    run("umoci", "init", "--layout", place / "oci")
    run("umoci", "new", "--image", image)
    for number, change in enumerate((_first, _second)):
        run("umoci", "unpack", "--image", image, bundle / str(number))
        change(bundle / str(number) / "rootfs")
        run("umoci", "repack", "--image", image, bundle / str(number))
    run("umoci", "config", "--image", image, "--config.env", "GREETING=hello=world", "--config.env", "HOLDFAST_X=1")
    run("umoci", "config", "--image", image, "--config.label", f"{SERVICES_LABEL}={json.dumps(SERVICES)}")
    return place / "oci"


def _first(root: Path) -> None:
    (root / "bin").mkdir()
    (root / "bin/tool").write_text("one")
    (root / "gone").write_text("gone")
    os.chown(root / "bin/tool", 33, 44)


def _second(root: Path) -> None:
    (root / "gone").unlink()
    (root / "two").write_text("two")


@pytest.fixture
def store() -> Iterator[ImageStore]:
    # not in a directory of pytest's, which are closed to the ids that enclosed programs have
    with tempfile.TemporaryDirectory(prefix="holdfast-layers-") as place:
        Path(place).chmod(0o755)
        store = ImageStore(Path(place) / "images", id_base=ID_BASE)
        yield store
        assert list(store.root.glob(".tmp-*")) == []


def check(store: ImageStore, name: str) -> None:
    found = store.root_of(name)
    assert ID_BASE is not None
    assert (found.layout / "bin/tool").read_text() == "one"
    assert (found.layout / "bin/tool").stat().st_uid == ID_BASE + 33
    assert (found.layout / "two").read_text() == "two"
    assert not (found.layout / "gone").exists()
    assert found.env.get("GREETING") == "hello=world" and "HOLDFAST_X" not in found.env
    assert found.services == read_services(SERVICES)


@pytest.mark.parametrize("form", ["oci", "oci-archive", "docker-archive"])
async def test_archives_and_layouts(store: ImageStore, layout: Path, tmp_path: Path, form: str) -> None:
    source = tmp_path / "with:colon" / "image"
    source.parent.mkdir()
    if form == "oci":
        shutil.copytree(layout, source)
    else:
        run("skopeo", "--insecure-policy", "copy", f"oci:{layout}:one", f"{form}:{tmp_path / 'image'}:name:tag")
        (tmp_path / "image").rename(source)
    info = await store.import_("one", source)
    assert info.kind == "imported" and (info.digest or "").startswith("sha256:")
    check(store, "one")


async def test_a_registry(store: ImageStore, layout: Path, tmp_path: Path) -> None:
    with registry(tmp_path) as address:
        name = f"docker://{address}/some/name:1"
        run("skopeo", "--insecure-policy", "copy", "--dest-tls-verify=false", f"oci:{layout}:one", name)
        await store.import_("one", name)
        check(store, "one")
        with pytest.raises(Unavailable, match="could not be fetched"):
            await store.import_("two", f"docker://{address}/absent:1")
    assert [one.name for one in await store.list()] == ["host", "one"]


@contextlib.contextmanager
def registry(place: Path) -> Iterator[str]:
    if shutil.which("docker-registry") is None:
        pytest.skip("REGISTRIES ARE NOT TESTED: install the package 'docker-registry'")
    config = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(place / "registry")}},
        "http": {"addr": "127.0.0.1:0"},
    }
    (place / "registry.yml").write_text(json.dumps(config))
    with open(place / "registry.log", "wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(place / "registry.yml")], stdout=log, stderr=log)
    try:
        said = re.compile(r"listening on (127\.0\.0\.1:\d+)")
        log_file = place / "registry.log"
        wait_for(lambda: said.search(log_file.read_text()) is not None, "the registry listens", seconds=20)
        found = said.search(log_file.read_text())
        assert found is not None
        yield found[1]
    finally:
        process.terminate()
        process.wait(10)


async def test_layers_that_are_damaged(store: ImageStore, layout: Path, tmp_path: Path) -> None:
    shutil.copytree(layout, tmp_path / "oci")
    largest = max((tmp_path / "oci/blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(b"damaged")
    with pytest.raises(BadInput, match=r"skopeo can read|cannot be unpacked"):
        await store.import_("one", tmp_path / "oci")
    with tarfile.open(tmp_path / "no.tar", "w") as tar:
        (tmp_path / "manifest.json").write_text("[]")
        tar.add(tmp_path / "manifest.json", "manifest.json")
    with pytest.raises(BadInput, match="skopeo can read"):
        await store.import_("one", tmp_path / "no.tar")


@pytest.mark.parametrize("text", ["docker://", "docker://a b", "docker://-x", "docker://x;y", "docker://x\n"])
async def test_references_that_are_none(store: ImageStore, text: str) -> None:
    with pytest.raises(BadInput, match="is not a reference"):
        await store.import_("one", text)


@pytest.mark.parametrize("host", ["169.254.169.254", "168.63.129.16:5000", "metadata.google.internal"])
async def test_no_registry_is_where_nobody_may_go(store: ImageStore, host: str) -> None:
    with pytest.raises(BadInput, match="nobody may reach"):
        await store.import_("one", f"docker://{host}/name:tag")


async def test_a_host_without_the_tools(store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.images.builds.enclosure._PATH", str(tmp_path))
    with pytest.raises(ToolMissing, match="apt-get install skopeo umoci"):
        await store.import_("one", f"{layers.REGISTRY}example.org/name")
