"""Keys, as an admin manages them: ``client.keys``."""

from urllib.parse import quote

from holdfast.sdk.sessions.copies import Managed
from holdfast.sdk.sessions.results import KeyInfo, NewKey, of_wire


class Keys(Managed):
    async def add(
        self,
        name: str,
        scope: str,
        *,
        owner: str | None = None,
        max_sessions: int | None = None,
        max_cpus: float | None = None,
        max_memory_mb: int | None = None,
        max_pids: int | None = None,
        max_disk_mb: int | None = None,
    ) -> NewKey:
        """Make a key with scope ``read``, ``use`` or ``admin``. Its text is in the result and nowhere else.

        ``owner`` is whose sessions it makes and sees, by default its own name. ``max_cpus`` and those after it are
        the most that each of its sessions may have; the daemon's own ceilings hold as well.

        Not repeated when the connection breaks: remove the key then, and add it again.
        """
        body: dict[str, object] = {"name": name, "scope": scope, "owner": owner, "max_sessions": max_sessions}
        ceilings = {
            "max_cpus": max_cpus,
            "max_memory_mb": max_memory_mb,
            "max_pids": max_pids,
            "max_disk_mb": max_disk_mb,
        }
        body |= {name: value for name, value in ceilings.items() if value is not None}  # older daemons do not know them
        data = await self._transport.call("POST", "/v1/keys", json_body=body)
        return NewKey(data["key"], of_wire(KeyInfo, data))

    async def list(self) -> list[KeyInfo]:
        """List keys by name; the root key is not among them."""
        data = await self._transport.call("GET", "/v1/keys")
        return [of_wire(KeyInfo, one) for one in data["keys"]]

    async def remove(self, name: str) -> None:
        """Lock a key out, at once. Its sessions live on."""
        await self._transport.call("DELETE", f"/v1/keys/{quote(name, safe='')}")
