"""Looks up host names with c-ares, without a thread per name, and with a share of the look-ups for each client.

``getaddrinfo`` blocks a thread per name until the name server answers, so one sandbox that asked for sixty slow names
could stop the look-ups of all others. c-ares reads ``/etc/hosts``, ``/etc/resolv.conf`` and the order in
``/etc/nsswitch.conf`` as the C library does, notices when they change, and caches answers for their time to live. It
knows no other sources of names (mDNS, LDAP, …).
"""

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import aiodns
import pycares
from aiodns import error as ares

from holdfast.network.addresses import Address

LOOK_UP_SECONDS = 10.0
TRY_SECONDS = 2.0
TRIES = 2
"""After the last try a look-up ends by itself, also if a client still waits for it."""
MOST_AT_ONCE = 8
"""How many look-ups of one client may be under way; further ones wait."""
RENEW_AFTER = 20_000
"""The cache is emptied after so many look-ups, so that a client that always asks for new names cannot fill our
memory."""
_SYSTEM_THREADS = 2

_WORDS = {
    ares.ARES_ENOTFOUND: "there is no such name",
    ares.ARES_ENODATA: "the name has no address",
    ares.ARES_ETIMEOUT: "the name server did not answer in time",
    ares.ARES_ECONNREFUSED: "there is no name server",
    ares.ARES_ESERVFAIL: "the name server could not find out",
    ares.ARES_EREFUSED: "the name server refuses to answer",
}
_UNKNOWN = (ares.ARES_ENOTFOUND, ares.ARES_ENODATA)


class NotResolved(OSError):
    """A name has no address, or could not be looked up; the message says why."""

    def __init__(self, why: str, *, unknown: bool = False) -> None:
        super().__init__(errno.EHOSTUNREACH, why)
        self.unknown = unknown
        """Whether a name server has answered that the name does not exist."""


class Names:
    """The resolver. It must be used, and closed, in one running loop. ``servers`` is for tests."""

    def __init__(self, *, servers: Sequence[str] = ()) -> None:
        self._servers = servers
        self._resolver: aiodns.DNSResolver | None = None
        self._asked = 0
        self._old: set[asyncio.Task[None]] = set()

    def ask(self, host: str) -> "asyncio.Future[pycares.AddrInfoResult]":
        """Start a look-up. It ends within the time of all tries, also if no client waits for it any more."""
        if self._resolver is None or self._asked >= RENEW_AFTER:
            self._renew()
        self._asked += 1
        assert self._resolver is not None
        return self._resolver.getaddrinfo(host, type=socket.SOCK_STREAM)

    def _renew(self) -> None:
        if self._resolver is not None:
            task = asyncio.create_task(_close_later(self._resolver))
            self._old.add(task)
            task.add_done_callback(self._old.discard)
        self._resolver = aiodns.DNSResolver(self._servers or None, timeout=TRY_SECONDS, tries=TRIES)
        self._asked = 0

    async def close(self) -> None:
        for task in self._old:
            task.cancel()
        if self._resolver is not None:
            await self._resolver.close()
            self._resolver = None


async def _close_later(resolver: aiodns.DNSResolver) -> None:
    """Close a resolver once its last look-up must have ended."""
    try:
        await asyncio.sleep(2 * LOOK_UP_SECONDS)
    finally:
        await resolver.close()


class Share:
    """The look-ups of one client: a session, or a part of the daemon."""

    def __init__(self, names: Names, *, most: int = MOST_AT_ONCE, seconds: float = LOOK_UP_SECONDS) -> None:
        self._names = names
        self._room = asyncio.Semaphore(most)
        self._seconds = seconds

    async def look_up(self, host: str) -> Sequence[Address]:
        """Look up all addresses of a name, in the order in which they should be tried. Raises ``NotResolved``."""
        try:
            async with asyncio.timeout(self._seconds):
                return _addresses(await self._ask(host))
        except TimeoutError:
            raise NotResolved(f"no answer within {self._seconds:g} s") from None
        except ares.DNSError as error:
            number = error.args[0] if error.args else 0
            why = _WORDS.get(number, f"the look-up failed ({error.args[-1] if error.args else 'no reason given'})")
            raise NotResolved(why, unknown=number in _UNKNOWN) from None

    async def _ask(self, host: str) -> pycares.AddrInfoResult:
        """Ask the resolver. The place in the share is used until the look-up has ended, even if its client leaves."""
        await self._room.acquire()
        try:
            found = self._names.ask(host)
        except BaseException:
            self._room.release()
            raise
        found.add_done_callback(self._ended)
        return await asyncio.shield(found)

    def _ended(self, found: "asyncio.Future[pycares.AddrInfoResult]") -> None:
        self._room.release()
        if not found.cancelled():
            found.exception()  # somebody has looked at it: the one who asked may be gone


def _addresses(result: pycares.AddrInfoResult) -> list[Address]:
    texts = dict.fromkeys(node.addr[0].decode().partition("%")[0] for node in result.nodes)
    return [ipaddress.ip_address(text) for text in texts]


class SystemNames:
    """Looks up names with the C library, in a few threads of its own, and so with all sources that the host has.

    It is used only for names that the operator has chosen, when c-ares does not know them.
    """

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    async def look_up(self, host: str) -> Sequence[Address]:
        """Look up all addresses of a name. Raises OSError."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_SYSTEM_THREADS, thread_name_prefix="names")
        work = asyncio.get_running_loop().run_in_executor(self._threads, _ask_system, host)
        try:
            async with asyncio.timeout(LOOK_UP_SECONDS):
                return await work
        except TimeoutError:
            raise NotResolved(f"no answer within {LOOK_UP_SECONDS:g} s") from None

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _ask_system(host: str) -> Sequence[Address]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [ipaddress.ip_address(text) for text in dict.fromkeys(str(one[4][0]).partition("%")[0] for one in found)]
