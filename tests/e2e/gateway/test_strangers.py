"""What somebody without any right can make the daemon do: little, and at little cost."""

import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.gateway.raw import Raw, raw
from support.gateway.visitor import NAVIGATES, Site
from support.waiting import wait_for

MANY = 300


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def hand_in(site: Site, ticket: str, host: str | None = None) -> int:
    host = host or site.host()
    headers = {**NAVIGATES, "Origin": f"http://{host}"}
    form = {"ticket": ticket}
    return site.ask("/.holdfast/enter", host=host, method="POST", headers=headers, data=form).status_code


def test_of_twenty_who_hand_in_one_ticket_one_gets_in(site: Site) -> None:
    for _ in range(3):
        ticket = site.link()["url"].partition("#ticket=")[2]
        barrier = threading.Barrier(20)

        def hand(_: int, ticket: str = ticket, barrier: threading.Barrier = barrier) -> int:
            barrier.wait()
            return hand_in(site, ticket)

        with ThreadPoolExecutor(20) as pool:
            assert sorted(pool.map(hand, range(20))) == [303] + [403] * 19


def test_a_late_ticket_is_worth_nothing(site: Site) -> None:
    link = site.link(ttl_seconds=10)
    end = datetime.fromisoformat(link["expires_at"])
    wait_for(lambda: datetime.now(UTC) > end, "it has expired")
    assert hand_in(site, link["url"].partition("#ticket=")[2]) == 403


def test_a_ticket_is_for_its_place(site: Site) -> None:
    ticket = site.link()["url"].partition("#ticket=")[2]
    for host in (site.host(3001), site.host("web"), site.host().replace(site.session_id[4:], "01" + "a" * 24)):
        assert hand_in(site, ticket, host) == 403
    assert hand_in(site, ticket) == 303, "and is still good there"


def guesses() -> Iterator[tuple[str, dict[str, str], str]]:
    """Path, headers and body."""
    for _ in range(MANY):
        yield "/", {"Cookie": f"__Host-hf={secrets.token_urlsafe(20)}"}, ""
        yield "/", {"X-Holdfast-Key": f"hf_{secrets.token_urlsafe(32)}"}, ""
        yield f"/?token={'a' * 200}.{secrets.token_urlsafe(8)}.{'c' * 50}", {}, ""
        yield "/.holdfast/enter", {**NAVIGATES}, ""
        yield "/.holdfast/enter", {**NAVIGATES, "Origin": "own"}, f"ticket={secrets.token_urlsafe(8)}"


def test_guesses_are_cheap(site: Site) -> None:
    """Keys and tokens are looked up in memory, and what has not even the form of a secret is not looked up."""
    with raw(site) as visitor:
        used = cpu_seconds(site.daemon.pid)
        for path, headers, body in guesses():
            headers = {name: site.origin() if value == "own" else value for name, value in headers.items()}
            lines = [f"{name}: {value}".encode() for name, value in headers.items()]
            method = b"POST" if body else b"GET"
            framing = [b"Content-Length: %d" % len(body)] if body else []
            visitor.ask(path.encode(), *lines, *framing, method=method, body=body.encode(), key=False)
            status, _, _ = visitor.answer()
            assert status in (401, 403) or "enter" in path
        cost = (cpu_seconds(site.daemon.pid) - used) / (5 * MANY)
    assert cost < 0.004, "seconds of the processor for each"


def test_whole_guesses_are_cheap_and_nobody_waits_behind_them(site: Site) -> None:
    """These have the form of a secret, so the database is asked: a few at a time, and never for writing."""
    cookie = site.enter()
    ended = threading.Event()

    def guess() -> int:
        count = 0
        while not ended.is_set():
            with raw(site) as visitor:
                visitor.ask(b"/", key=False, cookie=f"__Host-hf={secrets.token_urlsafe(32)}")
                assert visitor.answer()[0] == 401
            assert hand_in(site, secrets.token_urlsafe(32)) == 403
            count += 2
        return count

    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(guess) for _ in range(8)]
        slowest = 0.0
        for _ in range(20):
            began = time.monotonic()
            assert site.fetch("/page", cookie=cookie).status_code == 200
            slowest = max(slowest, time.monotonic() - began)
        ended.set()
        assert sum(one.result() for one in running) > 20
    assert slowest < 5


@pytest.mark.parametrize("path", ["/", "/.holdfast/enter", "/.holdfast/other"])
def test_a_stranger_learns_nothing_of_a_session(site: Site, path: str) -> None:
    """Whether it is there, whether it sleeps, what listens in it."""
    nobody = Site(site.daemon, "ses_01aaaaaaaaaaaaaaaaaaaaaaaa")
    answers = [one.ask(path, label=label) for one in (site, nobody) for label in (3000, 3999, 9000, "web")]
    assert len({(one.status_code, one.text) for one in answers}) == 1
    if path != "/.holdfast/enter":
        assert site.session_id not in answers[0].text


def test_forms_have_a_bound(site: Site) -> None:
    origin = f"Origin: {site.origin()}".encode()
    for body in (b"ticket=" + b"a" * 9000, b"&".join(b"a%d=1" % number for number in range(900))):
        with raw(site) as visitor:
            length = b"Content-Length: %d" % len(body)
            visitor.ask(b"/.holdfast/enter", origin, length, method=b"POST", body=body, key=False)
            assert visitor.answer()[0] in (400, 403)
    endless = Raw(site).ask(
        b"/.holdfast/enter", origin, b"Content-Length: 1000000000", method=b"POST", body=b"a" * 20_000, key=False
    )
    assert endless.head().startswith(b"HTTP/1.1 400 ")
    endless.socket.close()


def test_very_long_tokens_and_queries(site: Site) -> None:
    for query in ("token=" + "a" * 30_000 + ".b.c", "&".join(f"a{n}=1" for n in range(5000)) + "&token=a.b.c"):
        with raw(site) as visitor:
            began = time.monotonic()
            assert visitor.ask(f"/?{query}".encode(), key=False).answer()[0] == 401
            assert time.monotonic() - began < 5
