"""The runner: Holdfast's program inside a sandbox. Standard library and ``holdfast.protocol`` only.

It dials home, keeps the session's shells, moves files, and reaps zombies where it is PID 1. It is one thread around
one epoll, so that it starts in milliseconds and costs a few megabytes; whatever would block is done by a forked
child. It must not import asyncio, typing, re, enum, json, socket, signal or subprocess: each costs more than all
of this package (the leading-underscore C modules behind them are free).
"""
