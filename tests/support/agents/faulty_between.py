"""Stands between a real agent and whoever asks it, in the sandbox, and spoils answers on demand.

``python3 faulty_between.py PROGRAM ARGUMENT…`` starts the agent and passes on what goes in and out: lines of stdin and
stdout, and connections to the port that it listens at, which get a port of their own here. A file ``FAULTS/OP`` says
how the next request of that kind is answered in the agent's place; with ``always`` behind it, all of them. ``OP`` is
``prompt``, ``load`` (the way to a conversation), ``ask`` (any other request, but the first handshake), or ``any``.
``lost``: the request is passed on, and only its answer is not. ``FAULTS/turn``: something that is no answer at all is
said in the middle of a turn.

It needs nothing but Python, and is not part of the package.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

FAULTS = Path("/workspace/.faults")  # as in faulty_agent
PAGE = b"<html><body>Bad Gateway</body></html>"
LOADS = ("switch_session", "session/load", "session/resume", "session/list")
PROMPTS = ("prompt", "session/prompt")
MISSING = -32002
LISTENS = re.compile(rb"(listening on http://127\.0\.0\.1:)([0-9]+)")
PROCESS_DIES = 1  # PR_SET_PDEATHSIG

says = threading.Lock()
in_turn = threading.Event()


def fault_of(*ops: str) -> str | None:
    for op in ops:
        try:
            word, _, how = (FAULTS / op).read_text().partition(" ")
        except OSError:
            continue
        if how != "always":
            (FAULTS / op).unlink(missing_ok=True)
        return word
    return None


def op_of(kind: str) -> tuple[str, ...]:
    """Kinds of faults that concern this request."""
    if kind in PROMPTS:
        in_turn.set()
        return ("prompt", "any")
    if kind == "initialize":
        return ("any",)
    return ("load", "any") if kind in LOADS else ("ask", "any")


# -- lines -------------------------------------------------------------------------------------------------------------


def say(line: bytes) -> None:
    with says:
        os.write(1, line)


def spoil(told: dict[str, object], fault: str) -> None:
    """The answer to a request that came on stdin."""
    message = "404 Not Found" if fault == "404" else "503 Service Unavailable"
    answer: dict[str, object] = {"id": told["id"]}
    if fault == "garbage":
        say(PAGE + b"\n")
        if "type" in told:
            answer.update(type="response", huh=["?"])
        else:
            answer.update(jsonrpc="2.0", huh=["?"])
    elif "type" in told:
        answer.update(type="response", command=told["type"], success=False, error=message)
    else:
        answer.update(jsonrpc="2.0", error={"code": MISSING if fault == "404" else -32603, "message": message})
    say(json.dumps(answer).encode() + b"\n")


def pass_lines_in(agent: subprocess.Popen[bytes]) -> None:
    assert agent.stdin is not None
    for line in sys.stdin.buffer:
        told = json.loads(line)
        kind = str(told.get("type") or told.get("method") or "")
        fault = fault_of(*op_of(kind)) if "id" in told and kind else None
        if fault is None:
            agent.stdin.write(line)
            agent.stdin.flush()
        elif fault != "nothing":
            spoil(told, fault)
    agent.stdin.close()


def pass_lines_out(agent: subprocess.Popen[bytes]) -> None:
    assert agent.stdout is not None
    for line in agent.stdout:
        found = LISTENS.search(line)
        if found:
            port = serve(int(found[2]))
            line = line.replace(found[0], found[1] + str(port).encode())
        if in_turn.is_set() and fault_of("turn"):
            say(b"\x00\xff no words of any protocol\n" + PAGE + b'\n["?"]\n{"huh": {"type": "?"}}\n')
        say(line)


# -- connections -------------------------------------------------------------------------------------------------------


def read_request(client: socket.socket) -> bytes:
    """Its head and body."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(1 << 16)
        if not piece:
            return data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)^content-length: *([0-9]+)", head, re.MULTILINE)
    while length and len(body) < int(length[1]):
        body += client.recv(1 << 16)
    return head + b"\r\n\r\n" + body


def kind_of(request: bytes) -> str:
    """As the line of a stdin would say it. Who only listens to events asks nothing: an empty word."""
    method, path = request.split(b" ", 2)[:2]
    _, _, body = request.partition(b"\r\n\r\n")
    if b"/v1/acp/" in path:
        return str(json.loads(body).get("method") or "") if method == b"POST" else ""
    if path.endswith((b"/prompt_async", b"/command")) and method == b"POST":
        return "session/prompt"
    return "get"


def answered(fault: str) -> bytes:
    if fault == "garbage":
        return b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n" % len(PAGE) + PAGE
    body = json.dumps({"name": "NotFoundError" if fault == "404" else "Busy", "detail": fault}).encode()
    status = b"404 Not Found" if fault == "404" else b"503 Service Unavailable"
    head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(body)) + body


def handle(client: socket.socket, port: int) -> None:
    request = read_request(client)
    kind = kind_of(request) if request else ""
    fault = fault_of(*op_of(kind)) if kind else None
    if fault == "nothing":
        client.recv(1)  # until who asks has had enough
    elif fault not in (None, "lost"):
        client.sendall(answered(str(fault)))
    else:
        with socket.create_connection(("127.0.0.1", port)) as agent:
            agent.sendall(request)
            threading.Thread(target=hang_up, args=(client, agent), daemon=True).start()
            pass_answer(agent, client, is_lost=fault == "lost", is_stream=not kind)


def hang_up(client: socket.socket, agent: socket.socket) -> None:
    """When who has asked does so."""
    try:
        while client.recv(1 << 16):
            pass
        agent.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # both have


def pass_answer(agent: socket.socket, client: socket.socket, *, is_lost: bool, is_stream: bool) -> None:
    while data := agent.recv(1 << 16):
        if is_lost:
            continue
        client.sendall(data)
        if is_stream and in_turn.is_set() and data.endswith(b"\n\n\r\n") and fault_of("turn"):
            noise = b"data: " + PAGE + b'\n\ndata: ["?"]\n\n'
            client.sendall(b"%x\r\n%s\r\n" % (len(noise), noise))


def guarded(client: socket.socket, port: int) -> None:
    with client, contextlib.suppress(OSError):  # somebody has hung up
        handle(client, port)


def serve(port: int) -> int:
    server = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            client, _address = server.accept()
            threading.Thread(target=guarded, args=(client, port), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(server.getsockname()[1])


def listening(pid: int) -> int | None:
    """The port at which this process listens."""
    links = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.add(str(entry.readlink()))
        except OSError:
            continue  # closed meanwhile
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        row = line.split()
        if row[3] == "0A" and f"socket:[{row[9]}]" in links:
            return int(row[1].rpartition(":")[2], 16)
    return None


def serve_when_it_listens(agent: subprocess.Popen[bytes]) -> None:
    """For a server that says nothing of its port: the daemon looks at which one its process has."""
    while agent.poll() is None:
        try:
            port = listening(agent.pid)
        except OSError:
            return
        if port:
            serve(port)
            return
        time.sleep(0.05)


# -- the agent ---------------------------------------------------------------------------------------------------------


def die_with_us() -> None:
    ctypes.CDLL(None).prctl(PROCESS_DIES, signal.SIGKILL)


def main() -> int:
    agent = subprocess.Popen(
        sys.argv[1:],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=die_with_us,
    )
    signal.signal(signal.SIGTERM, lambda _number, _frame: agent.terminate())
    if "sandbox-agent" in sys.argv:
        threading.Thread(target=serve_when_it_listens, args=(agent,), daemon=True).start()
    threading.Thread(target=pass_lines_in, args=(agent,), daemon=True).start()
    pass_lines_out(agent)
    return agent.wait()


if __name__ == "__main__":
    sys.exit(main())
