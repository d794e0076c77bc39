"""Where the daemon is and which key opens it, when the caller does not say.

Arguments win over ``HOLDFAST_URL`` and ``HOLDFAST_API_KEY``, which win over the files that a daemon on this machine
leaves in its state directory: ``daemon.json`` (its URL) and ``api_key``. That directory is ``HOLDFAST_STATE_DIR``, else
what ``holdfast.yaml`` says, which is looked for where the daemon looks for it, else the usual one. A daemon that is
down has taken ``daemon.json`` away; then its setting ``listen`` says where it would be.
"""

import ipaddress
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.errors import BadInput, ConfigError, Unauthorized
from holdfast.vocabulary.places import find_config_file

DEFAULT_URL = "http://127.0.0.1:8080"
SYSTEM_STATE = Path("/var/lib/holdfast")


@dataclass(frozen=True, slots=True)
class Endpoint:
    url: str
    api_key: str


@dataclass(frozen=True, slots=True)
class _Settings:
    """What a configuration file says that a client wants to know."""

    state_dir: Path | None = None
    api_key: str | None = None
    listen: str | None = None


def find(
    url: str | None = None,
    api_key: str | None = None,
    env: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Endpoint:
    """Find the daemon to talk to. Raises ``BadInput``, ``ConfigError`` or ``Unauthorized`` with what to do."""
    env = os.environ if env is None else env
    given_url, given_key = url or env.get("HOLDFAST_URL"), api_key or env.get("HOLDFAST_API_KEY")
    settings = _Settings() if given_url and given_key else _configured(config, env)
    dirs = list(state_dirs(env, settings.state_dir))
    announced = next((found for place in dirs if (found := _url_in(place))), None)
    local_url = announced or _url_of(env.get("HOLDFAST_LISTEN") or settings.listen) or DEFAULT_URL
    url = (given_url or local_url).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(f"{url!r} is not a URL of a daemon; it looks like {DEFAULT_URL}")
    is_here = is_loopback(parts.hostname)
    if settings.state_dir is not None and not given_url and not is_here:
        given_key = api_key  # a file in the directory one happens to be in must not send the variable's key elsewhere
    key = given_key
    if not key and (url == local_url or is_here):  # never send this machine's key elsewhere
        named = settings.state_dir is not None
        key = settings.api_key or next((found for place in dirs if (found := _key_in(place, named=named))), None)
        if not key:
            raise Unauthorized(_no_key_here(url, dirs))
    if not key:
        raise Unauthorized(
            f"no API key for {url}: set HOLDFAST_API_KEY, or give --key, to a key of that daemon "
            "(`holdfast key add` makes one there; keys of this machine are never sent to another)"
        )
    return Endpoint(url, key)


def state_dirs(env: Mapping[str, str], configured: Path | None = None) -> Iterator[Path]:
    """Yield the places where a daemon may keep its state, the likeliest first."""
    if chosen := env.get("HOLDFAST_STATE_DIR"):
        yield Path(chosen)
        return
    if configured is not None:
        yield configured
        return
    home = env.get("XDG_STATE_HOME") or (Path(env["HOME"]) / ".local/state" if env.get("HOME") else None)
    own = Path(home) / "holdfast" if home else None
    order = [SYSTEM_STATE, own] if os.geteuid() == 0 else [own, SYSTEM_STATE]
    yield from (place for place in order if place is not None)


def _configured(config: Path | None, env: Mapping[str, str]) -> _Settings:
    file = find_config_file(config, env)
    text = None if file is None else _read(file.path)
    if file is None or text is None:  # none, an empty one, or one that is not for us
        return _Settings()
    import yaml  # only where there is a file

    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"{file.path}: is not valid YAML; `holdfast doctor` says where") from None
    if not isinstance(data, dict):
        return _Settings()
    place, key = data.get("state_dir"), data.get("api_key")
    listen = data.get("listen") if file.named else None  # a file that was only found must not say where keys are sent
    return _Settings(
        Path(place).expanduser() if isinstance(place, str) else None,
        key if isinstance(key, str) else None,
        listen if isinstance(listen, str) else None,
    )


def _url_of(listen: str | None) -> str | None:
    """Return where a daemon with this setting is reached from its own machine; it says so itself only while it runs."""
    host, _, port = (listen or "").rpartition(":")
    if not port.isdecimal() or port == "0":
        return None
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104 - only to reach it
    return f"http://{host}:{port}"


def _url_in(place: Path) -> str | None:
    try:
        url = json.loads(_read(place / "daemon.json") or "{}").get("url")
    except (ValueError, AttributeError):
        return None
    return url if isinstance(url, str) else None


def _key_in(place: Path, *, named: bool) -> str | None:
    """A directory that a file names may be a stranger's, as that file may be: a link in it that leads out of it would
    have us send some other secret of this machine to the address beside it."""
    path = place / "api_key"
    try:
        leads_out = named and not path.resolve().is_relative_to(place.resolve())
    except (OSError, RuntimeError):  # it is closed to us, or its links go in circles
        return None
    return None if leads_out else _read(path)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _no_key_here(url: str, dirs: list[Path]) -> str:
    hidden = [str(place / "api_key") for place in dirs if _exists(place / "api_key")]
    if hidden:
        return f"the API key in {hidden[0]} is not readable by this user; set HOLDFAST_API_KEY or run as its owner"
    looked = ", ".join(str(place) for place in dirs)
    return f"no API key for {url}: set HOLDFAST_API_KEY, or start a daemon with `holdfast up` (looked in {looked})"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the directory itself is closed to us
        return True
