"""Answers ``/git/…`` at the broker: each request goes on to its server, with the token; both bodies stream."""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import structlog
from aiohttp import web
from yarl import URL

from holdfast.broker.accounts import Books
from holdfast.broker.door import Visit
from holdfast.broker.git.environment import PART
from holdfast.broker.git.hosts import GitHost, GitSettings
from holdfast.broker.git.smart_http import PUSH, GitRequest, NotGit, parse
from holdfast.broker.secrets import KeyMissing
from holdfast.network.outside import Outside

log = structlog.get_logger(__name__)

CONNECT_SECONDS = 20.0
SILENT_SECONDS = 600.0
"""A server packs a large repository without a word."""
PIECE = 1 << 16
SAID = 2048
"""How much of a server's own words about an error is passed on."""

_ASKED = ("Accept", "Accept-Language", "User-Agent", "Git-Protocol")
_ASKED_OF_BODIES = ("Content-Type", "Content-Encoding", "Content-Length")
"""Only where the body is sent on, too. Connections to a server are shared: it would take what follows on one, another
sandbox's request with the token, for a body that was announced and did not come."""
_ANSWERED = ("Content-Type", "Content-Encoding", "Content-Length", "Cache-Control", "Expires", "Pragma")


class Untrusted(Exception):
    """The file with the certificates is of no use; the text says why."""


class Trust:
    """The operator's own certificates. A file is read when it is first needed, and again when it has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, int], ssl.SSLContext]] = {}

    async def context(self, ca_file: str) -> ssl.SSLContext | bool:
        """Return the TLS context for a connection; without a file, the client's own."""
        return await asyncio.to_thread(self._read, ca_file) if ca_file else True

    def _read(self, ca_file: str) -> ssl.SSLContext:
        try:
            found = Path(ca_file).stat()
            version = (found.st_mtime_ns, found.st_ino)
            known = self._known.get(ca_file)
            if known is not None and known[0] == version:
                return known[1]
            context = ssl.create_default_context()
            context.load_verify_locations(cafile=ca_file)
        except ssl.SSLError:
            raise Untrusted(f"{ca_file} has no certificates in PEM") from None
        except OSError as error:
            raise Untrusted(f"{ca_file} cannot be read: {error.strerror}") from None
        self._known[ca_file] = (version, context)
        return context


class GitProxy:
    """A ``Handler`` of the broker: ``broker.serve(PART, proxy)``."""

    def __init__(self, settings: GitSettings, books: Books, outside: Outside) -> None:
        self._outside = outside
        self._settings = settings
        self._books = books
        self._client: aiohttp.ClientSession | None = None
        self._trust = Trust()

    async def __call__(self, visit: Visit) -> web.StreamResponse:
        request = visit.request
        try:
            asked = parse(request.method, visit.rest, request.rel_url.raw_query_string)
            host = self._known(asked)
            account = await self._books.account(visit.session_id, None)
            if account is None:
                raise NotGit("this sandbox belongs to no thread (any more), so it reaches no git server through here")
            host = host.for_thread(account.owner, account.thread_key)
            _check_allowed(asked, host)
            headers = await self._headers(request, host)
        except NotGit as refusal:
            log.info("git.refused", session_id=visit.session_id, path=visit.rest, why=str(refusal))
            return _refused(403, str(refusal))
        except KeyMissing as missing:
            log.warning(
                "git.no_token", session_id=visit.session_id, host=visit.rest.partition("/")[0], why=str(missing)
            )
            return _refused(502, "Holdfast has no token for this git server at the moment; its operator can see why")
        response = await self._forward(request, host, asked, headers)
        log.info(
            "git.call",
            session_id=visit.session_id,
            thread_id=account.thread_id,
            host=host.name,
            repository=asked.repository,
            service=asked.service,
            status=response.status,
        )
        return response

    def _known(self, asked: GitRequest) -> GitHost:
        host = self._settings.hosts.get(asked.host.lower())
        if host is None:
            known = ", ".join(sorted(self._settings.hosts)) or "none"
            raise NotGit(f"Holdfast knows no git server {asked.host}; its configuration (git_credentials) has {known}")
        return host

    async def _headers(self, request: web.BaseRequest, host: GitHost) -> dict[str, str]:
        """Return the headers that git needs; credentials that a program in the sandbox sends stay here."""
        names = _ASKED if request.method == "GET" else _ASKED + _ASKED_OF_BODIES
        headers = {name: request.headers[name] for name in names if name in request.headers}
        headers["Accept-Encoding"] = request.headers.get("Accept-Encoding", "identity")
        if host.key is not None:
            headers["Authorization"] = _basic(host.username, await host.key.get())
        return headers

    async def _forward(
        self, request: web.BaseRequest, host: GitHost, asked: GitRequest, headers: dict[str, str]
    ) -> web.StreamResponse:
        url = URL(host.base_url + asked.target, encoded=True)
        body = None if request.method == "GET" else _body(request)
        try:
            trusted = await self._trust.context(host.ca_file)
            async with self._session().request(
                request.method,
                url,
                headers=headers,
                data=body,
                allow_redirects=False,
                ssl=trusted,
                proxy=self._outside.proxies.find_for(url),
            ) as answer:
                if answer.status in (401, 403) and host.key is not None:
                    host.key.refused()
                if answer.status >= 300:
                    return await _not_done(answer, host, asked)
                return await _pass_on(request, answer)
        except Untrusted as error:
            log.warning("git.ca_file", host=host.name, error=str(error))
            return _refused(502, f"Holdfast cannot check who {host.name} is; its operator can see why (ca_file)")
        except aiohttp.ClientConnectorCertificateError as error:
            why = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
            log.warning("git.untrusted", host=host.name, error=why)
            hint = "if its authority is your own, name it in git_credentials (ca_file)"
            return _refused(502, f"the certificate of {host.name} is not trusted: {why}; {hint}")
        except (aiohttp.ClientError, TimeoutError) as error:
            if request.writer.output_size:
                raise ConnectionResetError from error
            log.warning("git.unreachable", host=host.name, error=type(error).__name__)
            return _refused(502, f"the git server {host.name} cannot be reached: {type(error).__name__}")

    def _session(self) -> aiohttp.ClientSession:
        if self._client is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENT_SECONDS)
            self._client = aiohttp.ClientSession(
                connector=self._outside.connector(),
                timeout=timeout,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


def _check_allowed(asked: GitRequest, host: GitHost) -> None:
    """Raises ``NotGit``."""
    if not host.allows(asked.repository):
        raise NotGit(f"{asked.repository} on {host.name} is not among the paths that git_credentials allows")
    if asked.service == PUSH and not host.push:
        raise NotGit(f"git_credentials does not allow to push to {host.name}")


async def _body(request: web.BaseRequest) -> AsyncIterator[bytes]:
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # that was no part of the answer
    async for piece in request.content.iter_chunked(PIECE):
        yield piece


async def _pass_on(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = {name: answer.headers[name] for name in _ANSWERED if name in answer.headers}
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    async for piece in answer.content.iter_chunked(PIECE):
        await response.write(piece)
    await response.write_eof()
    return response


async def _not_done(answer: aiohttp.ClientResponse, host: GitHost, asked: GitRequest) -> web.Response:
    """Report an error as plain text, which git shows. It never gets 401, because it would ask for a password."""
    if answer.status in (301, 302, 307, 308):
        return _moved(answer, host)
    if answer.status == 401 or (answer.status == 403 and host.key is not None):
        refused, none = "has refused the token that Holdfast has for it", "wants a token, and git_credentials has none"
        return _refused(403, f"{host.name} {refused if host.key else none} ({asked.repository})")
    said = ""
    if answer.content_type == "text/plain" and "Content-Encoding" not in answer.headers:
        said = (await answer.content.read(SAID)).decode("utf-8", "replace").strip()
    what = f"{host.name} has answered with status {answer.status}"
    return _refused(answer.status, f"{what}: {said}" if said else what)


def _moved(answer: aiohttp.ClientResponse, host: GitHost) -> web.Response:
    """Follow a redirect only to another repository on the same server: the token goes nowhere else."""
    place = answer.headers.get("Location", "")
    url = answer.url.join(URL(place, encoded=True))
    if str(url.origin()) == str(URL(host.base_url).origin()):
        with contextlib.suppress(NotGit):
            found = parse(answer.method, f"{host.name}{url.raw_path}", url.raw_query_string)
            return web.Response(status=answer.status, headers={"Location": f"/{PART}/{host.name}{found.target}"})
    return _refused(403, f"{host.name} says that this repository is now at {url.with_query(None)}; use that address")


def _basic(username: str, token: str) -> str:
    return f"Basic {base64.b64encode(f'{username}:{token}'.encode()).decode()}"


def _refused(status: int, message: str) -> web.Response:
    return web.Response(status=status, text=f"{message}\n")
