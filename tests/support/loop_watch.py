"""How long a daemon lets others wait: a process of its own asks for /healthz all the time, and tells the longest wait.

In a process of its own, because what a test does (a large body, say) would hold up a thread beside it.
"""

import http.client
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

EVERY_SECONDS = 0.003


class LoopWatch:
    """``with LoopWatch(daemon.url) as watch: …; watch.worst()``: seconds, since it was asked last."""

    def __init__(self, url: str) -> None:
        self._command = [sys.executable, __file__, url]

    def __enter__(self) -> Self:
        self._child = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.worst()  # it has begun, and what it took to connect is nobody's fault
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill()
        self._child.communicate()

    def worst(self) -> float:
        """After one more whole question, so that one that still waits is counted."""
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write("\n")
        return float(self._child.stdout.readline())


def main(url: str) -> None:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    asked = threading.Event()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    worst = 0.0
    while True:
        began = time.perf_counter()
        last = asked.is_set()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        worst = max(worst, time.perf_counter() - began)
        if last:
            asked.clear()
            print(worst, flush=True)
            worst = 0.0
        time.sleep(EVERY_SECONDS)


def _listen(asked: threading.Event) -> None:
    for _line in sys.stdin:
        asked.set()


if __name__ == "__main__":
    main(sys.argv[1])
