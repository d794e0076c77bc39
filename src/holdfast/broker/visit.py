"""One request of a program in a sandbox to the broker, and what answers it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Visit:
    """``rest`` is what follows the first part of the path, still quoted: ``openai/v1/models`` of ``/llm/openai/…``."""

    session_id: str
    """Known by the link that it came over, and by nothing that it says."""
    request: web.BaseRequest
    rest: str


Handler = Callable[[Visit], Awaitable[web.StreamResponse]]
"""Answers; cancelled when the program hangs up. What it raises is logged, and answered with 500."""


def json_error(status: int, message: str, **headers: str) -> web.Response:
    """For paths that belong to no API with errors of its own."""
    return web.json_response({"error": {"message": message}}, status=status, headers=headers)
