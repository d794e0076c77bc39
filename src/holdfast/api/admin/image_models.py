"""Images as they look on the wire."""

from pydantic import BaseModel, Field, StrictBool

from holdfast.api.protocols import ImageInfo
from holdfast.api.wire.request_model import Request
from holdfast.api.wire.text import ImageSource, Name, Timestamp, timestamp


class ImageImport(Request):
    name: Name
    source: ImageSource = Field(
        description="On the daemon's host: a directory, a tar file, an OCI or docker save archive; or docker://REFERENCE"
    )
    replace: StrictBool = False


class ImageOut(BaseModel):
    name: str
    kind: str
    size_bytes: int | None
    created_at: Timestamp
    digest: str | None
    recipe: str | None = None

    @classmethod
    def of(cls, info: ImageInfo) -> "ImageOut":
        return cls(
            name=info.name,
            kind=info.kind,
            size_bytes=info.size_bytes,
            created_at=timestamp(info.created_at),
            digest=info.digest,
            recipe=info.recipe,
        )


class ImageList(BaseModel):
    images: list[ImageOut]
