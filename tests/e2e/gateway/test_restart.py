"""The daemon is killed: nobody takes half an answer for a whole one, and the next daemon knows its visitors."""

import threading

from support.daemons.daemon import DaemonProcess
from support.gateway.raw import Raw, frame, raw, scripted, send, target, whole
from support.gateway.raw import flood as flooding
from support.gateway.visitor import FETCHES, Site, open_site
from support.waiting import wait_for

GIB = 1 << 30
BODIES = {
    "of a length": target(
        send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % GIB), flooding(b"x", GIB >> 16, 65536)
    ),
    "chunked": target(
        send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), flooding(b"4\r\nmore\r\n", 1 << 30)
    ),
    "until it closes": target(send(b"HTTP/1.1 200 OK\r\n\r\n"), flooding(b"more", 1 << 30)),
}


def test_a_daemon_that_is_killed() -> None:
    with DaemonProcess() as daemon:
        daemon.keep_port()
        site = scripted(open_site(daemon))
        cookie = site.enter()
        origin = f"Origin: {site.origin()}".encode()
        downloads = {name: Raw(site) for name in BODIES}
        for name, one in downloads.items():
            assert one.ask(BODIES[name], origin, cookie=cookie).head().startswith(b"HTTP/1.1 200 ")
        socket = Raw(site)
        assert socket.websocket(target(["accept"], ["echo"]), origin, cookie=cookie).startswith(b"HTTP/1.1 101 ")
        upload = Raw(site)
        length = b"Content-Length: %d" % GIB
        upload.ask(target(["read", GIB], send(whole())), origin, length, method=b"PUT", cookie=cookie)
        ends: dict[str, bytes] = {}

        def read(name: str) -> None:
            tail, count = b"", 0
            try:
                while data := downloads[name].socket.recv(1 << 20):
                    tail, count = (tail + data)[-16:], count + len(data)
            except ConnectionError:
                tail = b""
            ends[name] = b"whole" if count == GIB or tail.endswith(b"0\r\n\r\n") else b"broken"

        threads = [threading.Thread(target=read, args=(name,)) for name in downloads]
        for thread in threads:
            thread.start()
        daemon.kill()
        for thread in threads:
            thread.join()
        assert ends == dict.fromkeys(BODIES, b"broken")
        assert socket.rest() == b""
        daemon.start()
        is_back(site, cookie, origin)


def is_back(site: Site, cookie: str, origin: bytes) -> None:
    """The same cookie opens the same session, at once."""

    def answers() -> bool:
        return site.fetch("/heard", cookie=cookie, headers=FETCHES).status_code == 200

    wait_for(answers, "the session is there again", 20)
    with raw(site) as visitor:
        assert visitor.websocket(target(["accept"], ["echo"]), origin, cookie=cookie).startswith(b"HTTP/1.1 101 ")
        visitor.socket.sendall(frame(b"again", mask=b"abcd"))
        assert visitor.read(11) == frame(b"again", mask=b"abcd")
