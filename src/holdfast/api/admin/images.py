"""/v1/images: the root file systems that sessions start from."""

from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, Field, StrictBool
from starlette.responses import Response

from holdfast.api.services import Images
from holdfast.api.wire.common import reply
from holdfast.api.wire.models import Output, Request
from holdfast.api.wire.routes import ADMIN, READ, Routes
from holdfast.api.wire.text import ImageSource, Name, Timestamp
from holdfast.images.store import ImageInfo


class ImageImport(Request):
    name: Name
    source: ImageSource = Field(
        description="On the daemon's host: a directory, a tar file, an OCI or docker save archive; or docker://REFERENCE"
    )
    replace: StrictBool = False


class ImageOut(Output, record=ImageInfo):
    name: str
    kind: str
    size_bytes: int | None
    created_at: Timestamp
    digest: str | None
    recipe: str | None = None


class ImageList(BaseModel):
    images: list[ImageOut]


def router(images: Images) -> Routes:
    routes = Routes("images")

    @routes.get("/v1/images", "List images", scope=READ, returns=ImageList, fails=(503,))
    async def list_images() -> Response:
        return reply(ImageList(images=[ImageOut.of(info) for info in await images.list()]))

    @routes.post(
        "/v1/images",
        "Import an image",
        scope=ADMIN,
        returns=ImageOut,
        status=201,
        fails=(404, 409, 413, 422, 503),
    )
    async def import_image(body: ImageImport) -> Response:
        """Make an image from a directory or a tar file on the daemon's host. A name that is taken needs ``replace``."""
        info = await images.import_(body.name, body.source, replace=body.replace)
        return reply(ImageOut.of(info), 201)

    @routes.delete("/v1/images/{name}", "Remove", scope=ADMIN, fails=(404, 409, 422, 503))
    async def remove_image(name: Annotated[Name, Path()]) -> Response:
        """Remove an image. This is refused while a session still runs from it."""
        await images.remove(name)
        return Response(status_code=204)

    return routes
