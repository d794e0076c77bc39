"""The HTTP edge: it checks, translates and hands on. What may be done to a session is decided below.

A request passes ``edge`` (who is calling, limits, failures) and reaches a noun's folder, where its routes and models
lie together; ``wire`` holds what all nouns share.

Read first: ``app`` (the whole application), ``wire/routes`` (how a route says who may use it), ``sessions/routes``.
Only the daemon's wiring imports this package.
"""

from holdfast.api.app import create_app
from holdfast.api.services import Services
from holdfast.api.settings import ApiSettings

__all__ = ["ApiSettings", "Services", "create_app"]
