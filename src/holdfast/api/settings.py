"""What the edge can be told. The daemon fills it from its configuration."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Limits of the edge itself; limits of sessions belong to the session service.

    ``max_body_bytes`` bounds a file upload as it travels (base64 is a third larger than the file);
    ``max_json_bytes`` bounds every other request, because those are parsed in one go.
    """

    max_body_bytes: int = 192 * MIB
    max_json_bytes: int = 16 * MIB
    default_page: int = 100
    max_page: int = 1000
