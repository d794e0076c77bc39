"""The names by which the machine knows sandboxes: of their containers, their cgroups and their processes.

Two state directories may hold the same session ids, for example a restored backup and its original. So a name is made
of the session's id and of the state directory. It is written down when the sandbox is made, and stays the same as long
as the sandbox exists, even if its state directory is moved. Sandboxes that earlier versions made have no such note;
their name is the session's id alone.
"""

import hashlib
import os
from pathlib import Path

_NOTE = "name"


def machine_name(session_id: str, state_dir: Path) -> str:
    """Return the name of a new sandbox."""
    place = hashlib.sha256(os.fsencode(state_dir.resolve())).hexdigest()
    return f"{session_id}-{place[:12]}"


def session_of(name: str) -> str:
    """Return the session id in a name, also in one that an earlier version gave: its ids have no hyphen."""
    return name.partition("-")[0]


class MachineNames:
    """The names of all sandboxes of one driver. Each sandbox has the directory ``<home>/<session id>``.

    ``proof`` is the file there that an earlier version wrote before it started anything.
    """

    def __init__(self, home: Path, proof: str) -> None:
        self._home = home
        self._proof = proof
        self._usual = machine_name("", home.parent)
        self._others: dict[str, str] = {}

    def of(self, session_id: str) -> str:
        return self._others.get(session_id) or session_id + self._usual

    def read(self, runtime_root: Path | None = None) -> None:
        """Read the notes of all sandboxes, once, when the daemon starts. Raises OSError.

        What has lost its directory may still be in ``runtime_root``, where a runtime has a directory of that name.
        """
        for path in self._home.iterdir():
            if (path / _NOTE).is_symlink():
                self._others[path.name] = str((path / _NOTE).readlink())
            elif (path / self._proof).exists():
                self._others[path.name] = path.name
        for path in runtime_root.iterdir() if runtime_root else ():
            if path.is_dir() and not (self._home / session_of(path.name)).exists():
                self._others[session_of(path.name)] = path.name

    def note(self, session_id: str) -> str:
        """Write down the name of a new sandbox, whose directory is empty, and return it. Raises OSError."""
        self._others.pop(session_id, None)
        (self._home / session_id / _NOTE).symlink_to(self.of(session_id))
        return self.of(session_id)

    def forget(self, session_id: str) -> None:
        """To be called before a sandbox's directory is removed, in any state. Raises OSError.

        The proof goes first: without a note beside it, it would lead to the sandbox of another state directory.
        """
        (self._home / session_id / self._proof).unlink(missing_ok=True)
        self._others.pop(session_id, None)
