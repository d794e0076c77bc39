"""What OpenCode's server is told, and what its refusals mean."""

import pytest

from holdfast.agents.http import Document, HttpReply
from holdfast.agents.opencode.server import basic, check
from holdfast.errors import AgentDown, AgentFailed, AgentSessionMissing

MISSING = {"name": "NotFoundError", "data": {"message": "no such thing"}}


def test_it_is_told_the_password_by_basic_authorization() -> None:
    assert basic("geheim") == "Basic b3BlbmNvZGU6Z2VoZWlt"


@pytest.mark.parametrize(
    ("status", "content", "path", "error"),
    [
        (404, MISSING, "/session/ses_1/abort", AgentSessionMissing),
        (404, MISSING, "/permission/per_1/reply", AgentFailed),
        (404, None, "/session/ses_1/abort", AgentFailed),
        (401, None, "/session", AgentDown),
        (500, {"name": "UnknownError"}, "/session", AgentFailed),
    ],
)
def test_refusals(status: int, content: Document, path: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        check(HttpReply(status, content), path)


@pytest.mark.parametrize("status", [200, 204])
def test_success(status: int) -> None:
    check(HttpReply(status, None), "/session")
