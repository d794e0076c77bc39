"""Whose fault an error is."""

import json

import pytest

from holdfast.broker.models.providers import errors

_REASON = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"code": "context_length_exceeded", "type": "invalid_request_error"}, 400),
        ({"code": "invalid_image_format"}, 400),
        ({"code": "image_too_large"}, 400),
        ({"code": 422, "message": "no"}, 400),
        ({"code": 400, "status": "INVALID_ARGUMENT"}, 400),
        ({"type": "request_too_large"}, 400),
        ({"code": 400, "status": "INVALID_ARGUMENT", "details": [_REASON]}, 401),
        ({"type": "invalid_request_error", "code": "invalid_api_key"}, 401),
        ({"type": "invalid_request_error", "message": "Your credit balance is too low to access it."}, 402),
        ({"type": "insufficient_quota", "code": "insufficient_quota"}, 402),
        ({"code": 400, "status": "FAILED_PRECONDITION"}, 403),
        ({"code": "rate_limit_exceeded"}, 429),
        ({"code": 429, "status": "RESOURCE_EXHAUSTED"}, 429),
        ({"code": "server_error", "message": "oh"}, 502),
        ({"type": "overloaded_error"}, 502),
        ({"code": 503}, 502),
        ({}, 502),
        ({"code": None, "details": "x", "type": ["y"]}, 502),
    ],
)
def test_an_error(error: dict[str, object], status: int) -> None:
    assert errors.status_of(error) == status


def test_an_answer() -> None:
    invalid = json.dumps({"error": {"code": 400, "details": [_REASON]}}).encode()
    assert errors.meant_status(400, invalid) == 401
    assert errors.meant_status(400, b"[" + invalid + b"]") == 401
    assert errors.meant_status(404, invalid) == 404, "only 400 means several things"
    overloaded = json.dumps({"error": {"type": "overloaded_error"}}).encode()
    for body in (b"", b"{", b"[]", b"3", b'{"error": 3}', overloaded):
        assert errors.meant_status(400, body) == 400
