"""Errors of agents, as people see them: the words, and not the JSON around them."""

import pytest

from holdfast.agents.base import AgentEvent, Cursor
from holdfast.agents.error_text import in_words, plain
from holdfast.vocabulary.turn_events import Kind, TurnEvent

WORDS = "one has answered with HTTP 401: it does not accept the key that the daemon has for it"
ANTHROPIC = f'401 {{"type":"error","error":{{"type":"provider_refused","message":"{WORDS}"}},"request_id":null}}'
GEMINI = f'got status: UNAUTHENTICATED. [{{"error":{{"code":401,"message":"{WORDS}","status":"UNAUTHENTICATED"}}}}]'
NESTED = '{"error":{"message":"{\\"error\\":{\\"message\\":\\"no such model\\"}}","code":404}}'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ANTHROPIC, WORDS),
        (GEMINI, f"got status: UNAUTHENTICATED.: {WORDS}"),
        (NESTED, "no such model"),
        ('Unauthorized: {"error":"no key"}', "Unauthorized: no key"),
        ('{"detail":"Not Found"} (request 7)', "Not Found (request 7)"),
        ("404 model not found", "404 model not found"),
        ("use {braces} here", "use {braces} here"),
        ('{"answer": 42}', '{"answer": 42}'),
        ("[" * 5000 + "{", "[" * 5000 + "{"),
        ("", ""),
    ],
)
def test_plain(text: str, words: str) -> None:
    assert plain(text) == words


def test_events() -> None:
    def told(kind: Kind, **data: object) -> AgentEvent:
        return AgentEvent(Cursor("1"), TurnEvent(kind, data))

    end = in_words(told(Kind.FINALIZE, reason="error", error={"code": "agent_failed", "message": ANTHROPIC}))
    assert end.event.data == {"reason": "error", "error": {"code": "agent_failed", "message": WORDS}}
    retry = in_words(told(Kind.ERROR, code="model_retried", message=ANTHROPIC, attempt=2))
    assert retry.event.data == {"code": "model_retried", "message": WORDS, "attempt": 2}
    for other in (told(Kind.FINALIZE, reason="end_turn"), told(Kind.TITLE, title=ANTHROPIC)):
        assert in_words(other) == other
