"""The HTTP edge: it checks, translates and hands on. What may be done to a session is decided below."""

from holdfast.api.app import create_app
from holdfast.api.settings import ApiSettings

__all__ = ["ApiSettings", "create_app"]
