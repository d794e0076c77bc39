"""/v1/images: the root file systems that sessions start from."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from holdfast.api.admin.image_models import ImageImport, ImageList, ImageOut
from holdfast.api.protocols import ImageService
from holdfast.api.wire.common import failures, reply
from holdfast.api.wire.text import Name


def router(images: ImageService) -> APIRouter:
    routes = APIRouter(tags=["images"])

    @routes.get("/v1/images", response_model=ImageList, responses=failures(503), summary="List images")
    async def list_() -> Response:
        return reply(ImageList(images=[ImageOut.of(info) for info in await images.list()]))

    @routes.post(
        "/v1/images",
        status_code=201,
        response_model=ImageOut,
        responses=failures(404, 409, 413, 422, 503),
        summary="Import an image",
    )
    async def import_(body: ImageImport) -> Response:
        """From a directory or a tar file on the daemon's host. An existing name needs ``replace``."""
        info = await images.import_(body.name, body.source, replace=body.replace)
        return reply(ImageOut.of(info), 201)

    @routes.delete("/v1/images/{name}", status_code=204, responses=failures(404, 409, 422, 503), summary="Remove")
    async def remove(name: Annotated[Name, Path()]) -> Response:
        """Refused while a session still runs from it."""
        await images.remove(name)
        return Response(status_code=204)

    return routes
