"""A git server on loopback, which wants a token: git's own ``http-backend`` behind a few lines of HTTP.

async with git_server(tmp_path) as server:
    server.make("acme/tool.git")            a bare repository with one commit
    server.url                              http://127.0.0.1:PORT
    server.seen                             each request's method, path and Authorization
"""

import asyncio
import base64
import contextlib
import os
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

USERNAME = "x-access-token"
IDENTITY = {"GIT_AUTHOR_NAME": "T", "GIT_AUTHOR_EMAIL": "t@x", "GIT_COMMITTER_NAME": "T", "GIT_COMMITTER_EMAIL": "t@x"}


def git(*words: str, cwd: Path | None = None, **env: str) -> str:
    """A git that knows nothing of whoever runs the tests; fails loudly."""
    clean = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", **IDENTITY, **env}
    done = subprocess.run(["git", *words], cwd=cwd, env=clean, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise AssertionError(f"git {' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


class GitServer:
    def __init__(self, root: Path, token: str) -> None:
        self.root = root
        self.token = token
        self.url = ""
        self.seen: list[tuple[str, str, str]] = []
        self.moved: dict[str, str] = {}
        """By the beginning of a path: where it is now."""
        self.gate = asyncio.Event()
        """While it is clear, requests are seen and not answered."""
        self.gate.set()

    def make(self, name: str) -> Path:
        bare, work = self.root / name, self.root / "work" / name
        git("init", "-q", "-b", "main", str(work))
        (work / "README").write_text(f"this is {name}\n")
        git("add", ".", cwd=work)
        git("commit", "-q", "-m", "first", cwd=work)
        git("clone", "-q", "--bare", str(work), str(bare))
        git("config", "http.receivepack", "true", cwd=bare)
        return bare

    async def handle(self, request: web.Request) -> web.Response:
        given = request.headers.get("Authorization", "")
        self.seen.append((request.method, request.path_qs, given))
        await self.gate.wait()
        for old, new in self.moved.items():
            if request.path_qs.startswith(old):
                raise web.HTTPMovedPermanently(new + request.path_qs.removeprefix(old))
        wanted = base64.b64encode(f"{USERNAME}:{self.token}".encode()).decode()
        if given != f"Basic {wanted}":
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="git"'}, text="who are you?")
        return await self._backend(request, await request.read())

    async def _backend(self, request: web.Request, body: bytes) -> web.Response:
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query_string,
            "REQUEST_METHOD": request.method,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
            "HTTP_GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
            "REMOTE_USER": USERNAME,
        }
        process = await asyncio.create_subprocess_exec(
            "git", "http-backend", env=env, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate(body)
        head, _, content = out.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        status = int(headers.pop("Status", "200").split()[0])
        if status == 404:
            return web.Response(status=404, text="Repository not found.")
        return web.Response(status=status, headers=headers, body=content)


@contextlib.asynccontextmanager
async def git_server(root: Path, token: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[GitServer]:
    server = GitServer(root, token)
    app = web.Application(client_max_size=256 << 20)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, auto_decompress=False, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()
