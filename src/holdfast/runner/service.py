"""What the runner offers: one method per call of the protocol."""

from __future__ import annotations

import os

from holdfast.protocol import fields, frames
from holdfast.protocol.messages import INLINE_FILE_BYTES
from holdfast.runner import files
from holdfast.runner.bulk import Bulk
from holdfast.runner.execs import Exec, Execs
from holdfast.runner.loop import Loop
from holdfast.runner.private_dir import repair
from holdfast.runner.shell import Shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Reply = Callable[..., None]
    """``reply(header, body=b"")``"""

DEFAULT_SHELL = "main"
MAX_SHELLS = 16


class Service:
    """Answers calls. A reply may come later, from the shell; the connection may be gone by then, which is fine."""

    def __init__(self, loop: Loop, bulk: Bulk, argv: list[str], env: dict[str, str], home: str, run_dir: str) -> None:
        self._loop = loop
        self._bulk = bulk
        self._argv = argv
        self._env = env
        self._home = home
        self._run_dir = run_dir
        self._shells: dict[str, Shell] = {}
        self._calls = {
            "ping": self._ping,
            "exec": self._exec,
            "exec.get": self._exec_get,
            "fs.read": self._fs_read,
            "fs.write": self._fs_write,
            "fs.pull": self._fs_pull,
            "fs.push": self._fs_push,
            "fs.open": self._fs_open,
            "shutdown": self._shutdown,
        }
        self.execs = Execs()
        if argv:
            self._shell(DEFAULT_SHELL).warm_up()

    def serve(self, header: frames.Header, body: bytes, reply: Reply) -> None:
        call = self._calls.get(str(header.get("op")))
        if call is None:
            _refuse(reply, "protocol_error", f"this runner does not know the op {header.get('op')!r}")
            return
        try:
            call(header, body, reply)
        except files.FileError as error:
            _refuse(reply, error.code, error.message)
        except (KeyError, TypeError, ValueError) as error:
            _refuse(reply, "protocol_error", f"{header.get('op')}: {type(error).__name__}: {error}")
        except OSError as error:
            _refuse(reply, "unavailable", f"the sandbox cannot do this now: {error.strerror}")

    def _ping(self, _header: frames.Header, _body: bytes, reply: Reply) -> None:
        reply({})

    def _shutdown(self, _header: frames.Header, _body: bytes, reply: Reply) -> None:
        reply({})
        os._exit(0)

    def _shell(self, name: str) -> Shell:
        shell = self._shells.get(name)
        if shell is None:
            if len(self._shells) >= MAX_SHELLS:
                raise files.FileError("bad_input", f"shell: a session has at most {MAX_SHELLS} shells")
            shell = Shell(self._loop, name, self._argv, self._env, self._home, self._run_dir, self._make_order)
            self._shells[name] = shell
        return shell

    def _make_order(self) -> None:
        """A command could not be prepared: perhaps another has meddled with our directory."""
        repair(self._run_dir, set().union(*[shell.paths() for shell in self._shells.values()]))

    def _exec(self, header: frames.Header, body: bytes, reply: Reply) -> None:
        """Start a command, or join the one that already has this id: asking twice never runs it twice."""
        if not self._argv:
            _refuse(reply, "shell_unavailable", "the image has no bash, and the runtime bundle was built without one")
            return
        cut = fields.integer(header, "cmd_bytes")
        job = Exec(fields.text(header, "exec_id"), body[:cut], body[cut:], header)
        known = self.execs.get(job.exec_id)
        if known is not None and known.request != job.request:
            _refuse(reply, "idempotency_mismatch", "this Idempotency-Key was used for another command")
            return
        (known or job).when_done(lambda done: _answer(done, reply))
        if known is None:
            shell = self._shell(str(header.get("shell") or DEFAULT_SHELL))
            self.execs.add(job)
            shell.submit(job)

    def _exec_get(self, header: frames.Header, _body: bytes, reply: Reply) -> None:
        job = self.execs.get(fields.text(header, "exec_id"))
        if job is None:
            _refuse(reply, "exec_not_found", f"no command {header['exec_id']} in this session, or it was long ago")
        else:
            job.when_done(lambda done: _answer(done, reply))

    def _fs_read(self, header: frames.Header, _body: bytes, reply: Reply) -> None:
        reply(*files.read(fields.text(header, "path"), fields.integer(header, "limit")))

    def _fs_write(self, header: frames.Header, body: bytes, reply: Reply) -> None:
        files.write(fields.text(header, "path"), body, fields.optional_integer(header, "mode"))
        reply({})

    def _fs_pull(self, header: frames.Header, _body: bytes, reply: Reply) -> None:
        limit = max(fields.integer(header, "limit"), INLINE_FILE_BYTES)
        self._bulk.pull(fields.text(header, "path"), limit, fields.text(header, "stream"))
        reply({})

    def _fs_push(self, header: frames.Header, _body: bytes, reply: Reply) -> None:
        mode, size = fields.optional_integer(header, "mode"), fields.integer(header, "size")
        self._bulk.push(fields.text(header, "path"), mode, size, fields.text(header, "stream"))
        reply({})

    def _fs_open(self, header: frames.Header, _body: bytes, reply: Reply) -> None:
        self._bulk.open(fields.text(header, "stream"))
        reply({})


def _refuse(reply: Reply, code: str, message: str) -> None:
    reply({"error": {"code": code, "message": message}})


def _answer(job: Exec, reply: Reply) -> None:
    if job.error is not None:
        _refuse(reply, *job.error)
    else:
        reply(*job.reply())
