"""Identifiers: a prefix that says what it is, the time in front so that they sort by age, and 80 random bits."""

import hashlib
import os
import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_ANY_BYTE = _ALPHABET.encode() * 8
"""A letter for each byte, each letter as often as any other."""


def new_session_id() -> str:
    return f"ses_{_encode(int(time.time() * 1000), 10)}{_encode(secrets.randbits(80), 16)}"


def new_snapshot_id() -> str:
    return _of_session("snp_", new_session_id())


def fork_id_for(session_id: str) -> str:
    """The snapshot that a fork is made of: known from the fork's own id, and gone when the fork is up."""
    return _of_session("snp_", session_id)


def session_of_fork(snapshot_id: str) -> str:
    return _of_session("ses_", snapshot_id)


def new_workspace_id() -> str:
    return _of_session("wsp_", new_session_id())


def _of_session(prefix: str, id: str) -> str:
    return prefix + id[len(prefix) :]


def new_exec_id() -> str:
    return "exe_" + os.urandom(26).translate(_ANY_BYTE).decode()


def exec_id_for(session_id: str, idempotency_key: str) -> str:
    """The same key in the same session is the same command: the runner runs an exec id once."""
    return "exe_" + _digest(f"{session_id}\0{idempotency_key}")


def new_process_id() -> str:
    return f"prc_{_encode(secrets.randbits(130), 26)}"


def process_id_for(session_id: str, idempotency_key: str) -> str:
    """The same key in the same session is the same process: the runner starts an id once."""
    return "prc_" + _digest(f"process\0{session_id}\0{idempotency_key}")


def service_process_id(session_id: str, service: str) -> str:
    """A service has one process, which any daemon finds again by its id."""
    return "prc_" + _digest(f"service\0{session_id}\0{service}")


def _digest(text: str) -> str:
    return _encode(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16]), 26)


def _encode(number: int, length: int) -> str:
    characters = []
    for _ in range(length):
        number, digit = divmod(number, 32)
        characters.append(_ALPHABET[digit])
    return "".join(reversed(characters))
