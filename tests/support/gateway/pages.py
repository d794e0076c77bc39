# mypy: ignore-errors
"""A web site for inside a sandbox, hostile on demand: it stands beside ``inside`` and adds what browsers need."""

import socket
import sys
import threading

from inside import Handler, Server

PAGE = b"""<!doctype html><html lang=en><meta charset=utf-8><title>Inside</title><link rel=icon href="data:,">
<h1>hello from inside</h1><p id=said></p>"""
LIVE = b"""<!doctype html><html lang=en><meta charset=utf-8><title>Live</title><link rel=icon href="data:,">
<h1>live</h1><script>
window.opened = 0; window.refused = 0; window.heard = [];
function connect() {
  const socket = new WebSocket("/ws".replace(/^/, location.origin.replace("http", "ws")), ["chat"]);
  window.socket = socket;
  let was_open = false;
  socket.onopen = () => { was_open = true; window.opened += 1; };
  socket.onmessage = (event) => window.heard.push(event.data);
  socket.onclose = (event) => {
    window.ended = [event.code, performance.now()];
    if (!was_open) window.refused += 1;
    setTimeout(connect, 100);
  };
}
connect();
</script>"""
WORKER = b"""self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("fetch", (event) => {
  const headers = {"Content-Type": "text/html"};
  event.respondWith(new Response("<h1>PWNED by " + location.host + "</h1>", {headers}));
});"""
seen = []
lock = threading.Lock()


class Site(Handler):
    def parse_request(self):
        fine = super().parse_request()
        if fine and self.path != "/seen":
            with lock:
                seen.append([self.command, self.path])
        return fine

    def page_(self):
        self.answer(PAGE, kind="text/html")

    def page_live(self):
        self.answer(LIVE, kind="text/html")

    def page_worker(self):
        self.answer(WORKER, ("Service-Worker-Allowed", "/"), kind="text/javascript")

    def page_seen(self):
        """What was asked here since it started, but for this."""
        self.tell(seen=seen)

    def page_toss(self):
        """Cookies that would be of use to somebody who wants to be taken for others."""
        name, _, domain = self.path.partition("?")[2].partition("&")
        cookies = [f"{name}=evil; Path=/; Secure", f"tossed=1; Path=/; Domain={domain}"]
        self.answer(PAGE, *(("Set-Cookie", cookie) for cookie in cookies), kind="text/html")


if __name__ == "__main__":
    server = Server(("127.0.0.1", int(sys.argv[1])), Site)
    server.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server.serve_forever()
