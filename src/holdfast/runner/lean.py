"""The C modules behind parts of the standard library whose Python halves are too heavy for us.

``signal`` and ``socket`` bring in ``enum``, ``collections`` half a dozen others: together as much as this whole
package, in every sandbox. Their C halves offer the same names; type checkers are shown the full ones.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    import signal as signals
    import socket as sockets
    from collections import deque
else:
    import _signal as signals
    import _socket as sockets
    from _collections import deque

__all__ = ["deque", "signals", "sockets"]
