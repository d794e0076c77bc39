"""The calls that the runner answers: one method per call of the protocol."""

from __future__ import annotations

import os

from holdfast.protocol import fields, frames
from holdfast.runner import files
from holdfast.runner.lean import Callable, Mapping
from holdfast.runner.line.bulk import Bulk
from holdfast.runner.line.control import Control
from holdfast.runner.line.dial import Dialer
from holdfast.runner.loop import Loop
from holdfast.runner.output import OutputFeed
from holdfast.runner.private_dir import repair
from holdfast.runner.refused import Refused, Reply, refuse
from holdfast.runner.shell import saved_shells
from holdfast.runner.shell.execs import Exec, ExecTable
from holdfast.runner.shell.shell import Shell

Call = Callable[[frames.Header, bytes, Reply], None]

DEFAULT_SHELL = "main"
MAX_SHELLS = 16
SETTLE_SECONDS = 0.005


class Service:
    """Answers calls; ``calls`` has the calls that other parts answer.

    A reply may come later, from the shell; if the connection is gone by then, the reply is dropped.
    """

    def __init__(
        self,
        loop: Loop,
        dialer: Dialer,
        bulk: Bulk,
        argv: list[str],
        env: dict[str, str],
        home: str,
        run_dir: str,
        calls: Mapping[str, Call],
    ) -> None:
        self._loop = loop
        self._dialer = dialer
        self._bulk = bulk
        self._argv = argv
        self._env = env
        self._home = home
        self._run_dir = run_dir
        self._shells: dict[str, Shell] = {}
        self._calls = {
            "ping": self._ping,
            "env": self._set_environment,
            "shells.save": self._save_shells,
            "shells.load": self._load_shells,
            "exec": self._exec,
            "exec.start": self._exec_start,
            "exec.get": self._exec_get,
            "exec.attach": self._exec_attach,
            "exec.cancel": self._exec_cancel,
            "fs.read": self._fs_read,
            "fs.write": self._fs_write,
            "fs.open": self._fs_open,
            "quiesce": self._quiesce,
            "shutdown": self._shutdown,
            **calls,
        }
        self.control: Control | None = None
        """The connection that calls come from; it is made after this."""
        self.execs = ExecTable()
        if argv:
            self._shell(DEFAULT_SHELL).warm_up()

    def serve(self, header: frames.Header, body: bytes, reply: Reply) -> None:
        call = self._calls.get(str(header.get("op")))
        if call is None:
            refuse(reply, "protocol_error", f"this runner does not know the op {header.get('op')!r}")
            return
        try:
            call(header, body, reply)
        except Refused as error:
            refuse(reply, error.code, error.message)
        except (KeyError, TypeError, ValueError) as error:
            refuse(reply, "protocol_error", f"{header.get('op')}: {type(error).__name__}: {error}")
        except OSError as error:
            refuse(reply, "unavailable", f"the sandbox cannot do this now: {error.strerror}")

    def _ping(self, _header: frames.Header, _body: bytes, reply: Reply) -> None:
        reply({})

    def _shutdown(self, _header: frames.Header, _body: bytes, reply: Reply) -> None:
        reply({})
        os._exit(0)

    def _quiesce(self, header: frames.Header, body: bytes, reply: Reply) -> None:
        """Close every connection to the host before a checkpoint, because a checkpoint cannot contain them.

        It is refused while anything is under way that would be lost. The host has stopped listening before it calls
        this, so the runner's next attempts to dial are refused. They go on while the checkpoint begins, and again from
        the moment that the memory is restored, until the host listens again. So the runner need not know that the
        sandbox was away, and a checkpoint that fails needs no undo.
        """
        control, problem = self.control, None
        if self.busy:
            problem = "a command is running in this session"
        elif self._bulk.children:
            problem = "files of this session are being read or written"
        elif control is None or control.unanswered > 1:  # one of them is ours
            problem = "another call to this session is under way"
        if problem or control is None:
            refuse(reply, "conflict", f"{problem}; wait for its end")
        elif not self.settled:
            self._loop.after(SETTLE_SECONDS, lambda: self._quiesce(header, body, reply))
        else:
            self._dialer.hang_up()
            reply({})
            control.rest()

    def _set_environment(self, header: frames.Header, _body: bytes, reply: Reply) -> None:
        """Set variables of a sandbox that was made ahead for the pool, as if it had been created with them.

        The waiting shell is replaced, because bash treats some variables differently when they are set later.
        """
        extra = fields.texts(header, "env")
        if self.execs:
            refuse(reply, "conflict", "the environment of a session is set before its first command")
            return
        if extra:
            self._env.update(extra)  # in place: everything that starts processes shares it
            for shell in self._shells.values():
                shell.kill()
            self._shells.clear()
            if self._argv:
                self._shell(DEFAULT_SHELL).warm_up()
        reply({})

    @property
    def busy(self) -> bool:
        """Whether a command runs or waits in any shell."""
        return any(shell.busy for shell in self._shells.values())

    @property
    def settled(self) -> bool:
        """Whether every shell has reported its state after its last command."""
        return all(shell.settled for shell in self._shells.values())

    def _save_shells(self, header: frames.Header, body: bytes, reply: Reply) -> None:
        """Return the state of all shells, for a time in which the sandbox does not run.

        The answer comes when the state after the last command is known. With ``running`` it is given also while
        commands run; such a shell is saved as it was before its command.
        """
        while_busy = bool(header.get("running"))
        if not while_busy and self.busy:
            refuse(reply, "conflict", "a command is running in this session; wait for its end, or cancel it")
        elif all(shell.settled or shell.busy for shell in self._shells.values()):
            reply(*saved_shells.pack({name: shell.known for name, shell in self._shells.items()}))
        else:
            self._loop.after(SETTLE_SECONDS, lambda: self._save_shells(header, body, reply))

    def _load_shells(self, header: frames.Header, body: bytes, reply: Reply) -> None:
        """Restore saved shells, before the first command. The variables in ``renew`` keep this runner's own values."""
        if self.execs:
            refuse(reply, "conflict", "saved shells are loaded before the first command")
            return
        own = {name: self._env.get(name) for name in fields.names(header, "renew")}
        found = saved_shells.unpack(header, body, own)
        for shell in self._shells.values():
            shell.kill()
        self._shells.clear()
        for name, (cwd, state) in found.items():
            self._shell(name).continue_from(cwd, state)
        reply({})

    def _shell(self, name: str) -> Shell:
        shell = self._shells.get(name)
        if shell is None:
            if len(self._shells) >= MAX_SHELLS:
                raise Refused("bad_input", f"shell: a session has at most {MAX_SHELLS} shells")
            shell = Shell(self._loop, name, self._argv, self._env, self._home, self._run_dir, self._make_order)
            self._shells[name] = shell
        return shell

    def _make_order(self) -> None:
        """Repair our directory, because a command could not be prepared: perhaps another one has damaged it."""
        repair(self._run_dir, set().union(*[shell.paths() for shell in self._shells.values()]))

    def _exec(self, header: frames.Header, body: bytes, reply: Reply) -> None:
        """Run a command to its end."""
        self._submit(header, body).when_done(lambda done: _answer(done, reply))

    def _exec_start(self, header: frames.Header, body: bytes, reply: Reply) -> None:
        """Start a command without waiting for its end. The host will follow its output."""
        job = self._submit(header, body)
        job.output.expect_follower(self._loop)
        reply({"exec_id": job.exec_id})

    def _submit(self, header: frames.Header, body: bytes) -> Exec:
        """Start a command, or return the one that already has this id, so that a repeated call never runs it twice."""
        if not self._argv:
            raise Refused("shell_unavailable", "the image has no bash, and the runtime bundle was built without one")
        cut = fields.integer(header, "cmd_bytes")
        job = Exec(fields.text(header, "exec_id"), body[:cut], body[cut:], header)
        known = self.execs.get(job.exec_id)
        if known is not None:
            if known.request != job.request:
                raise Refused("idempotency_mismatch", "this Idempotency-Key was used for another command")
            return known
        shell = self._shell(str(header.get("shell") or DEFAULT_SHELL))
        self.execs.add(job)
        shell.submit(job)
        return job

    def _find_exec(self, header: frames.Header) -> Exec:
        job = self.execs.get(fields.text(header, "exec_id"))
        if job is None:
            raise Refused("exec_not_found", f"no command {header['exec_id']} in this session, or it was long ago")
        return job

    def _exec_get(self, header: frames.Header, _body: bytes, reply: Reply) -> None:
        brief = bool(header.get("brief"))
        self._find_exec(header).when_done(lambda done: _answer(done, reply, brief=brief))

    def _exec_attach(self, header: frames.Header, _body: bytes, reply: Reply) -> None:
        job = self._find_exec(header)
        connection = self._dialer.connect_stream(fields.text(header, "stream"))
        self._dialer.entrust(OutputFeed(self._loop, connection, job.output, fields.integer(header, "offset")))
        reply({"exec_id": job.exec_id})

    def _exec_cancel(self, header: frames.Header, _body: bytes, reply: Reply) -> None:
        """Cancel a command. The answer is its result, once it has ended."""
        job = self._find_exec(header)
        job.when_done(lambda done: _answer(done, reply))
        job.cancel()

    def _fs_read(self, header: frames.Header, _body: bytes, reply: Reply) -> None:
        path, limit = fields.text(header, "path"), fields.integer(header, "limit")
        if not header.get("files_only"):
            reply(*files.read(path, limit))
            return
        from holdfast.runner.tasks.sight import FilesOnly  # here, because most sessions never need it

        sight = FilesOnly()
        try:
            reply(*files.read(path, limit, sight))
        finally:
            sight.close()

    def _fs_write(self, header: frames.Header, body: bytes, reply: Reply) -> None:
        with files.Replacement(fields.text(header, "path"), fields.optional_integer(header, "mode")) as replacement:
            replacement.write(body)
            replacement.commit()
        reply({})

    def _fs_open(self, header: frames.Header, _body: bytes, reply: Reply) -> None:
        self._bulk.open(fields.text(header, "stream"))
        reply({})


def _answer(job: Exec, reply: Reply, *, brief: bool = False) -> None:
    if job.error is not None:
        refuse(reply, *job.error)
    else:
        reply(*job.reply(brief=brief))
