"""Images as they look on the wire."""

from pydantic import BaseModel, Field, StrictBool

from holdfast.api.protocols import ImageInfo
from holdfast.api.wire.models import Output, Request
from holdfast.api.wire.text import ImageSource, Name, Timestamp


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
