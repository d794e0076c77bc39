"""The synchronous client is the async one behind a thread."""

import threading
from dataclasses import replace

import pytest

from holdfast import errors
from holdfast.sdk import Client, Session, SyncClient, SyncSession
from support.api_host import ApiHost


def threads() -> int:
    return sum(thread.name == "holdfast-sdk" for thread in threading.enumerate())


def test_a_session_from_beginning_to_end(api: ApiHost) -> None:
    with SyncClient(api.url, api.key) as client:
        assert threads() == 1
        with client.create_session(ttl_seconds=60) as session:
            assert session.exec("echo hi").check().stdout == "hi\n"
            session.write("/x", "text")
            assert session.read("/x") == b"text"
            assert [one.id for one in client.list_sessions(status="active")] == [session.id]
            listed, stats = client.list_sessions(stats=True)[0].info.stats, session.stats()
            assert listed is not None and replace(listed, uptime_seconds=stats.uptime_seconds) == stats
            assert client.get_session(session.id).info == session.refresh().info
        assert session.refresh().status == "destroyed"
        with pytest.raises(errors.SessionGone):
            session.exec("true")
        assert [one.name for one in client.images.list()] == ["host"]
    assert threads() == 0
    client.close()


def test_a_forgotten_client_ends_its_thread(api: ApiHost) -> None:
    client = SyncClient(api.url, api.key)
    client.create_session()
    del client
    assert threads() == 0


@pytest.mark.parametrize(("sync", "full"), [(SyncClient, Client), (SyncSession, Session)])
def test_nothing_is_missing(sync: type, full: type) -> None:
    assert {name for name in dir(full) if not name.startswith("_")} <= set(dir(sync)) | {"info", "images"}


def test_what_is_shown_of_a_session_cannot_be_set(api: ApiHost) -> None:
    with SyncClient(api.url, api.key) as client:
        session = client.create_session()
        assert session.id == session.info.id
        with pytest.raises(AttributeError, match="id cannot be set"):
            session.id = "ses_other"
    assert SyncSession.id is vars(SyncSession)["id"], "as a property of a class, for help() and mocks"
