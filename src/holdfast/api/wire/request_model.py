"""What the bodies of all requests have in common."""

from pydantic import BaseModel, ConfigDict


class Request(BaseModel):
    """A field that nobody knows is a mistake, and is told as one."""

    model_config = ConfigDict(extra="forbid")
