"""Images, as the caller manages them: ``client.images``."""

from urllib.parse import quote

from holdfast.sdk.sessions.copies import Managed
from holdfast.sdk.sessions.results import ImageInfo, of_wire

IMPORT_SECONDS = 1800.0  # unpacking a root file system takes a while


class Images(Managed):
    async def list(self) -> list[ImageInfo]:
        data = await self._transport.call("GET", "/v1/images")
        return [of_wire(ImageInfo, one) for one in data["images"]]

    async def import_(self, name: str, source: str, *, replace: bool = False) -> ImageInfo:
        """Make an image from a directory or tar file; ``source`` is an absolute path on the daemon's host."""
        body = {"name": name, "source": source, "replace": replace}
        return of_wire(
            ImageInfo, await self._transport.call("POST", "/v1/images", json_body=body, timeout=IMPORT_SECONDS)
        )

    async def remove(self, name: str) -> None:
        await self._transport.call("DELETE", f"/v1/images/{quote(name, safe='')}")
