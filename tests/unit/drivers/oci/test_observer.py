"""Looking at OCI sandboxes while others come and go."""

from pathlib import Path

import pytest

from holdfast.drivers.commands import Outcome
from holdfast.drivers.oci.driver import OciDriver
from holdfast.drivers.oci.observer import OciObserver
from holdfast.errors import DriverTransient

pytestmark = pytest.mark.anyio


async def listed(outcomes: list[Outcome], root: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    observer = OciDriver(root)

    async def runtime(_self: OciObserver, *_arguments: str) -> Outcome:
        return outcomes.pop(0)

    monkeypatch.setattr(OciObserver, "_runtime", runtime)
    return [found.session_id for found in await observer._containers()]


async def test_a_list_that_fails_because_another_is_being_deleted_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Outcome(("runc",), 1, "", "stat …/ses_2: no such file or directory")
    whole = Outcome(("runc",), 0, '[{"id": "ses_1", "status": "running"}]', "")
    assert await listed([gone, gone, whole], tmp_path, monkeypatch) == ["ses_1"]
    with pytest.raises(DriverTransient, match="ses_2"):
        await listed([gone] * 3, tmp_path, monkeypatch)
