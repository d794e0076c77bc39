"""Pages of our own at the addresses of sessions: the door, what went wrong, and one to wait at.

They are static: nothing of a request appears in them. Each is sent with a policy that allows only what it has itself.
"""

import base64
import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from string import Template

Header = tuple[bytes, bytes]

_STYLE = (resources.files(__name__) / "style.css").read_text()
_FRAME = Template((resources.files(__name__) / "frame.html").read_text())
_GOES_ON = """<noscript><meta http-equiv=refresh content=1></noscript>
<script>setTimeout(() => location.reload(), 1000);</script>"""
"""Not by a header: where the address has a fragment, browsers only scroll there."""
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class StaticPage:
    """A whole answer, but for its status."""

    body: bytes
    headers: tuple[Header, ...]


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _page(title: str, content: str, *, policy: str = "sandbox", kind: str = "still") -> StaticPage:
    scripts = " ".join(map(_hash, _SCRIPT.findall(content)))
    rules = [
        "default-src 'none'",
        f"style-src {_hash(_STYLE)}",
        "img-src data:",  # the icon: without one, browsers would ask for /favicon.ico
        "base-uri 'none'",
        policy,
        f"script-src {scripts}" if scripts else "",
    ]
    body = _FRAME.substitute(title=title, style=_STYLE, content=content, kind=kind).encode()
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"content-security-policy", "; ".join(rule for rule in rules if rule).encode()),
        (b"referrer-policy", b"same-origin"),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    return StaticPage(body, tuple(headers))


def _problem(title: str, text: str, remedy: str) -> StaticPage:
    return _page(title, f"<h1>{title}</h1><p>{text}</p><p class=remedy>{remedy}</p>")


ENTER = _page(
    "Opening the sandbox",
    (resources.files(__name__) / "enter.html").read_text(),
    policy="form-action 'self'",
    kind="busy",
)


def _waiting(title: str, text: str) -> StaticPage:
    content = f"<h1>{title}</h1><p role=status>{text} This page goes on by itself in a moment.</p>{_GOES_ON}"
    return _page(title, content, policy="form-action 'none'", kind="busy")


WAITING = _waiting("Waking the sandbox", "It was asleep.")
STARTING = _waiting("Starting", "It is being started.")

_ASK = "Ask whoever gave you the address for a new link, or make one with <code>holdfast open</code>."
PROBLEMS = {
    "unauthorized": _problem("You need a link to come in", "This address leads into a private sandbox.", _ASK),
    "bad_link": _problem("This link is no longer good", "It was used already, has expired, or was revoked.", _ASK),
    "forbidden": _problem(
        "This way in is closed",
        "The request came from another page, or leads to a port that is not open to visitors.",
        "Open the address itself, in a tab of its own.",
    ),
    "session_not_found": _problem("There is no such sandbox", "Perhaps it was removed.", _ASK),
    "session_gone": _problem("This sandbox is gone", "It was destroyed, or it has expired.", _ASK),
    "tunnel_not_found": _problem(
        "Nothing has this name", "The sandbox has no tunnel or service of this name.", "Check the address."
    ),
    "service_not_found": _problem(
        "The sandbox does not have this",
        "Its image declares no service of this name.",
        "Make a sandbox from an image that does.",
    ),
    "service_failed": _problem(
        "It did not start, or has died",
        "A service of this sandbox failed.",
        "What it wrote is in its log: <code>holdfast service log</code>. Reload this page to start it again.",
    ),
    "service_keeps_failing": _problem(
        "It keeps failing",
        "A service of this sandbox has failed several times in a row, and is left alone for some minutes.",
        "What it wrote is in its log: <code>holdfast service log</code>.",
    ),
    "service_needs_memory": _problem(
        "The sandbox is too small for this",
        "The service needs more memory than the sandbox may use.",
        "Make a sandbox with more memory.",
    ),
    "service_stopped": _problem("It is stopped", "It starts when somebody opens its page.", "Reload this page."),
    "nothing_listens": _problem(
        "Nothing is running here yet",
        "The sandbox is there, but no program listens at this port.",
        "Start the program (on 127.0.0.1 or all addresses), then reload this page.",
    ),
    "asleep": _problem("The sandbox is asleep", "It wakes when somebody opens its page.", "Reload this page."),
    "wrong_state": _problem(
        "The sandbox cannot be used now",
        "It is being changed, or something went wrong with it.",
        "Its operator sees why with <code>holdfast ls</code>.",
    ),
    "sandbox_lost": _problem("The sandbox went away", "It died while it was asked.", "Reload this page in a moment."),
    "bad_answer": _problem(
        "The program did not answer in HTTP",
        "Something listens at this port, but it hung up, or speaks another protocol.",
        "Look at its output in the sandbox.",
    ),
    "no_answer": _problem(
        "The program does not answer", "It took the request and stayed silent.", "Look at its output in the sandbox."
    ),
    "too_many_connections": _problem(
        "Too many connections", "This sandbox has as many visitors as it may.", "Close some tabs, then reload."
    ),
}
"""By the code of the error."""
_OTHER = _problem("This did not work", "The sandbox could not be reached.", "Reload this page in a moment.")


def problem(code: str) -> StaticPage:
    return PROBLEMS.get(code, _OTHER)
