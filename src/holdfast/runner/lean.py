"""The C modules behind ``signal``, ``socket`` and ``collections``, whose Python parts are too heavy for the runner.

``signal`` and ``socket`` import ``enum``, and ``collections`` imports half a dozen other modules: together as much as
this whole package, in every sandbox. The C modules have the same names in them; type checkers see the full modules.
The abstract types are in a module that Python itself has loaded at its start.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    import signal as signals
    import socket as sockets
    from collections import deque
    from collections.abc import Callable, Iterator, Mapping
else:
    import _signal as signals
    import _socket as sockets
    from _collections import deque
    from _collections_abc import Callable, Iterator, Mapping

__all__ = ["Callable", "Iterator", "Mapping", "deque", "signals", "sockets"]
