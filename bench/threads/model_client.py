"""Asks a model as an agent would, and prints what it saw as JSON. Runs in a sandbox and on the host; stdlib only.

model_client.py URL first COUNT               one after the other: milliseconds from the request to the first event
model_client.py URL many COUNT EVENTS EVERY   at the same time: how old each event was when it came, in milliseconds
"""

import http.client
import json
import re
import selectors
import socket
import sys
import time
from urllib.parse import urlsplit

CLOCK = re.compile(rb'"content":"([0-9]+)"')
SECONDS = 120.0
SPREAD_SECONDS = 2.0


def body(events: int, every: float) -> bytes:
    messages = [{"role": "user", "content": "hello " * 200}]
    asked = {"model": "m", "stream": True, "messages": messages, "events": events, "every": every}
    return json.dumps(asked).encode()


def first(url: str, count: int) -> list[float]:
    """Over one connection, as agents do."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=SECONDS)
    took = []
    for _ in range(count):
        started = time.perf_counter()
        connection.request("POST", parts.path, body(2, 0.001), {"content-type": "application/json"})
        response = connection.getresponse()
        response.read(1)
        took.append((time.perf_counter() - started) * 1000)
        if response.status != 200 or b"[DONE]" not in response.read():
            raise SystemExit(f"HTTP {response.status}")
    return took


def many(url: str, count: int, events: int, every: float) -> list[float]:
    """They are begun one after the other, since agents do not ask all in the same moment."""
    parts = urlsplit(url)
    asked = body(events, every)
    fields = f"host: x\r\ncontent-type: application/json\r\ncontent-length: {len(asked)}"
    request = f"POST {parts.path} HTTP/1.1\r\n{fields}\r\n\r\n".encode() + asked
    ages: list[float] = []
    begun = ended = 0
    started = time.monotonic()
    with selectors.DefaultSelector() as selector:
        while ended < count and time.monotonic() < started + SECONDS:
            due = started + begun * SPREAD_SECONDS / count
            if begun < count and time.monotonic() >= due:
                connection = socket.create_connection((parts.hostname, parts.port), timeout=SECONDS)
                connection.sendall(request)
                selector.register(connection, selectors.EVENT_READ, connection)
                begun += 1
                continue
            for key, _ in selector.select(max(due - time.monotonic(), 0.0) if begun < count else 1.0):
                data = key.data.recv(1 << 16)
                now = time.monotonic_ns()
                ages += [(now - int(clock)) / 1e6 for clock in CLOCK.findall(data)]
                if not data or data.endswith(b"0\r\n\r\n"):
                    ended += 1
                    selector.unregister(key.data)
    if len(ages) != count * events:
        raise SystemExit(f"{len(ages)} events came, of {count * events}")
    return ages


def main() -> None:
    url, what, *numbers = sys.argv[1:]
    if what == "first":
        print(json.dumps(first(url, int(numbers[0]))))
    else:
        print(json.dumps(many(url, int(numbers[0]), int(numbers[1]), float(numbers[2]))))


if __name__ == "__main__":
    main()
