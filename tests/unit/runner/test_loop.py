"""The runner's loop sleeps when there is nothing to do, whatever the kernel reports."""

import os

from holdfast.runner.loop import READ, Loop


def test_a_descriptor_that_nobody_watches_does_not_keep_it_awake() -> None:
    """As with gVisor, whose epoll reports descriptors again that were closed before a checkpoint."""
    loop, heard = Loop(), list[str]()
    stale_read, stale_write = os.pipe()
    read, write = os.pipe()
    loop.watch(read, READ, lambda _events: heard.append(os.read(read, 100).decode()))
    loop._epoll.register(stale_read, READ)
    os.write(stale_write, b"x")
    os.write(write, b"one ")
    loop.run_once()
    assert loop._epoll.poll(0) == [], "it would be woken for ever"
    os.write(write, b"two")
    loop.run_once()
    assert heard == ["one ", "two"]
    loop.unwatch(read)
    loop.forget()
    for fd in (stale_read, stale_write, read, write):
        os.close(fd)
