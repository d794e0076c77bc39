"""fs/write and fs/read: every way to say it, cut into every kind of chunk."""

import asyncio
import base64
import json
import os
from typing import Any

import httpx2
import pytest
from fastapi.exceptions import RequestValidationError
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.files.body import FileBody, FileUpload
from holdfast.errors import BadInput
from support.api_host import ApiHost


def read_body(raw: bytes, size: int) -> FileUpload:
    body = FileBody()
    for at in range(0, len(raw), size):
        body.feed(raw[at : at + size])
    return asyncio.run(body.finish())


@given(
    data=st.binary(max_size=200),
    path=st.text(max_size=20).map(lambda text: "/" + text.replace("\0", "")),
    size=st.integers(1, 64),
    order=st.permutations(["path", "content_base64", "mode"]),
    indent=st.sampled_from([None, 1]),
    slashes=st.booleans(),
)
def test_any_json_in_any_chunks(
    data: bytes, path: str, size: int, order: list[str], indent: int | None, slashes: bool
) -> None:
    content = base64.b64encode(data).decode()
    fields = {"path": path, "content_base64": content, "mode": "0644"}
    text = json.dumps({name: fields[name] for name in order}, indent=indent)
    if slashes:  # as PHP and others escape them
        text = text.replace("/", "\\/")
    assert read_body(text.encode(), size) == FileUpload(path, data, 0o644)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"path":"/a","content":"h\\u00f6i"}', FileUpload("/a", "höi".encode(), None)),
        ('{"path":"/a","content":""}', FileUpload("/a", b"", None)),
        ('{"path":"/a","content_base64":""}', FileUpload("/a", b"", None)),
        ('{"path":"/a","content_base64":"\\u0051UJD","mode":493}', FileUpload("/a", b"ABC", 0o755)),
        ('{"path":"/a","content_base64":"AAAA","content_base64":"QUJD"}', FileUpload("/a", b"ABC", None)),
        (
            '{"path":"/\\"content_base64\\":\\"x","content_base64":"QUJD"}',
            FileUpload('/"content_base64":"x', b"ABC", None),
        ),
        ('{"path":"/a","content":"\\"content_base64\\":\\""}', FileUpload("/a", b'"content_base64":"', None)),
        ('{"content":null,"mode":null,"content_base64":"QQ==","path":"/a"}', FileUpload("/a", b"A", None)),
    ],
)
def test_odd_bodies(text: str, size: int, expected: FileUpload) -> None:
    assert read_body(text.encode(), size) == expected


@pytest.mark.parametrize("size", [1, 4, 5, 1000])
@pytest.mark.parametrize(
    "text",
    [
        '{"path":"/a","content_base64":"QUJ"}',
        '{"path":"/a","content_base64":"QUJD="}',
        '{"path":"/a","content_base64":"QQ==QUJD"}',
        '{"path":"/a","content_base64":"QQ==QQ=="}',
        '{"path":"/a","content_base64":"QU JD"}',
        '{"path":"/a","content_base64":"QUJ\\n"}',
        '{"path":"/a","content_base64":"QUé="}',
        '{"path":"/a","content_base64":"QU-_"}',
        '{"path":"/a","content_base64":"="}',
        '{"path":"/a","content_base64":"QUJD"',
        '{"path":"/a","content_base64":"QUJD',
        '{"path":"/a","content_base64":"QUJD"}}',
        '{"path":"/a","content_base64":"QUJD","content":"x"}',
        '{"path":"/a"}',
        '{"path":"a","content":"x"}',
        '{"path":"/a\\u0000","content":"x"}',
        '{"path":"/a","content":"x","mode":"999"}',
        '{"path":"/a","content":"x","mode":99999}',
        '{"path":"/a","content":"x","mode":true}',
        '{"path":"/a","content":"x","owner":"me"}',
        '{"a":b,"path":"/a","content_base64":"QUJD"}',
        "",
    ],
)
def test_bad_bodies(text: str, size: int) -> None:
    with pytest.raises((BadInput, RequestValidationError)):
        read_body(text.encode(), size)


@pytest.mark.anyio
@pytest.mark.parametrize("length", [0, 1, 2, 3, 1_000_000, 3 * 256 * 1024, 3 * 256 * 1024 + 1])
async def test_bytes_come_back(client: httpx2.AsyncClient, session_id: str, length: int) -> None:
    data = os.urandom(length)
    url = f"/v1/sessions/{session_id}/fs"
    body = {"path": "/tmp/x", "content_base64": base64.b64encode(data).decode(), "mode": "0600"}
    response = await client.post(f"{url}/write", json=body)
    assert (response.status_code, response.json()) == (200, {"ok": True})
    response = await client.get(f"{url}/read", params={"path": "/tmp/x"})
    assert int(response.headers["content-length"]) == len(response.content)
    assert response.json() == {"content_base64": base64.b64encode(data).decode(), "truncated": False}


@pytest.mark.anyio
async def test_raw_bytes(
    client: httpx2.AsyncClient, session_id: str, host: ApiHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = host.note(monkeypatch, "write_file")
    url, raw = f"/v1/sessions/{session_id}/fs", "application/octet-stream"
    params = {"path": "/tmp/x", "mode": "0750"}
    response = await client.post(f"{url}/write", params=params, content=b"\0\xff", headers={"Content-Type": raw})
    assert response.json() == {"ok": True}
    assert noted == [((session_id, "/tmp/x", b"\0\xff"), {"mode": 0o750})]
    response = await client.get(f"{url}/read", params={"path": "/tmp/x", "max_bytes": 1}, headers={"Accept": raw})
    assert (response.content, response.headers["x-truncated"]) == (b"\0", "true")
    response = await client.post(f"{url}/write", content=b"x", headers={"Content-Type": raw})
    assert response.status_code == 422
    response = await client.post(f"{url}/write?path=tmp", content=b"x", headers={"Content-Type": raw})
    assert response.status_code == 422


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"path": "/nope"}, 404),
        ({"path": "relative"}, 422),
        ({}, 422),
        ({"path": "/a\0"}, 422),
        ({"path": "/a", "max_bytes": "-1"}, 422),
        ({"path": "/a", "max_bytes": "many"}, 422),
        ({"path": "/" + "a" * 5000}, 422),
    ],
)
async def test_bad_reads(client: httpx2.AsyncClient, session_id: str, params: dict[str, Any], status: int) -> None:
    response = await client.get(f"/v1/sessions/{session_id}/fs/read", params=params)
    assert response.status_code == status
    assert response.json()["error"]["message"]


@pytest.mark.anyio
async def test_too_large_is_refused_while_it_arrives(
    client: httpx2.AsyncClient, session_id: str, host: ApiHost
) -> None:
    asked = 0

    async def endless() -> Any:
        nonlocal asked
        yield b'{"path":"/x","content_base64":"'
        while True:
            asked += 1
            yield b"A" * 65536

    response = await client.post(f"/v1/sessions/{session_id}/fs/write", content=endless())
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")
    assert asked < 100
    assert not host.files(session_id)
