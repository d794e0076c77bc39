"""Pseudo-terminals: opened here, made the child's own, and resized."""

from __future__ import annotations

import fcntl
import os
import struct
import termios


def open_terminal(rows: int, columns: int) -> tuple[int, int]:
    """Our end and the program's. Raises OSError where there is none to be had."""
    ours, theirs = os.openpty()
    resize(ours, rows, columns)
    os.set_blocking(ours, False)
    return ours, theirs


def resize(terminal: int, rows: int, columns: int) -> None:
    """The kernel tells the programs in front (SIGWINCH)."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def control(terminal: int) -> None:
    """In a child that leads a session of its own: make this its controlling terminal."""
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
