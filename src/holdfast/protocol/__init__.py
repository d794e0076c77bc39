"""The wire protocol between the host and the runner: frames, their fields, and the names of all calls.

Standard library only, and no I/O, because both ends import it and one of them runs inside the sandbox.

Read first: ``frames`` (the wire format), ``messages`` (the calls), ``fields`` (how a header is checked).
Every other package may import this one.
"""
