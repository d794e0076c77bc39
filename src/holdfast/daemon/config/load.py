"""Reading the configuration: from a YAML file, with or without sections, and from ``HOLDFAST_*``, which wins.

Every problem becomes one line of a ``ConfigError``: the setting as it was written, where its value came from, what is
wrong and what is allowed.
"""

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from holdfast.daemon.config.config import Config
from holdfast.daemon.config.keys import KEYS, PLACES, is_section
from holdfast.errors import ConfigError
from holdfast.vocabulary.places import find_config_file

ENV_PREFIX = "HOLDFAST_"
_MAY_HOLD_SECRETS = ("api_key", "database_url", "git_credentials", "providers", "webhooks")
"""Some because people put a secret where only its source belongs: the error that says so must not repeat it."""
_SECTIONS = sorted({place.partition(".")[0] for place in PLACES})


@dataclass(frozen=True, slots=True)
class _Value:
    """A raw value, the name that it was given under, and where it came from."""

    name: str
    value: object
    origin: str


def env_name(key: str) -> str:
    return ENV_PREFIX + key.upper()


def load_config(path: Path | None = None) -> Config:
    """Read the configuration from file and environment. Raises ``ConfigError`` with one line per problem."""
    file = find_config_file(path)
    found: dict[str, _Value] = {}
    wrong = list(_read_file(file.path, found)) if file else []
    if file and not file.named:
        _check_found(file.path, found)
    problems = []
    for name, text in os.environ.items():
        key = name.removeprefix(ENV_PREFIX).lower()
        if name == env_name(key) and key in KEYS:
            found[key] = _Value(key, text, name)
        elif name.startswith(ENV_PREFIX) and name != "HOLDFAST_CONFIG" and (near := _nearest(key, KEYS)):
            # Other HOLDFAST_ variables are not ours (clients and service links have some), but a typo must not pass.
            problems.append(f"{name} (environment): there is no such setting; did you mean {env_name(near)}?")
    names = {key: value.name for key, value in found.items()}
    try:
        config = Config.model_validate({key: value.value for key, value in found.items()}, context=names)
    except ValidationError as error:
        # A default that hangs on a wrong value is not a second problem.
        details = [dict(detail) for detail in error.errors() if detail["type"] != "default_factory_not_called"]
        problems += [_explain(detail, found) for detail in details]
    if problems or wrong:
        raise ConfigError("\n".join([*problems, *wrong]))
    return config


def _read_file(file: Path, found: dict[str, _Value]) -> Iterator[str]:
    """Put the settings of a file into ``found``, and yield the problems of their names; values are checked later."""
    for name, value in _settings(_parse(file)):
        key = PLACES.get(name, name)
        known, section = key in KEYS, is_section(name)
        if value is None and (known or section):
            continue  # as if it were not there; the environment cannot say null
        if known and key in found:
            yield f"{name} ({file}): is the same setting as {found[key].name}, which is there, too; keep one of them"
        elif known:
            found[key] = _Value(name, value, str(file))
        elif section:
            yield f"{name} ({file}): is a section, and must hold settings, one 'key: value' per line"
        else:
            yield f"{name} ({file}): there is no such setting; {_hint(name)}"


def _settings(data: Mapping[str, object], section: str = "") -> Iterator[tuple[str, object]]:
    """Yield each setting with its name as it is written; in a section, after the name of the section."""
    for key, value in data.items():
        name = f"{section}{key}"
        if isinstance(value, dict) and name not in PLACES and is_section(name):
            yield from _settings(value, f"{name}.")
        else:
            yield name, value


def _parse(file: Path) -> Mapping[str, object]:
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        # Nothing of the error's own text: it may quote the line with the key.
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{file}{line}: is not valid YAML; values with special characters need quotes") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{file}: must hold settings, one 'key: value' per line")
    return data


def _check_found(file: Path, found: Mapping[str, _Value]) -> None:
    """Refuse a file that sets what only a file may set that somebody has named. Raises ``ConfigError``."""
    refused = {value.name: why for key, value in found.items() if (why := KEYS[key].refused)}
    if refused:
        lines = [f"{name} ({file}): not from a file that was only found here: {why}" for name, why in refused.items()]
        remedy = f"If you trust {file.absolute()}, name it: --config ./{file}, or HOLDFAST_CONFIG=./{file}"
        raise ConfigError("\n".join([*lines, remedy]))


def _nearest(name: str, names: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.75)), None)


def _hint(name: str) -> str:
    """Say what somebody may have meant by a name that does not exist."""
    section, dot, field = name.rpartition(".")
    if not dot:
        near = _nearest(name, [*KEYS, *_SECTIONS])
        return f"did you mean {near}?" if near else f"the settings are {', '.join(sorted(KEYS))}"
    names = [place.removeprefix(section + dot) for place in PLACES if place.startswith(section + dot)]
    if field in KEYS and (place := KEYS[field].place):
        return f"did you mean {place}?"
    near = _nearest(field, names)
    return f"did you mean {section}.{near}?" if near else f"the settings of {section} are {', '.join(sorted(names))}"


def _explain(detail: Mapping[str, Any], found: Mapping[str, _Value]) -> str:
    """Tell one problem that pydantic found in one line."""
    key = str(detail["loc"][0])
    given = found.get(key, _Value(key, detail["input"], "default"))
    what = str(detail["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"][1:])
    # The raw value, not detail["input"]: validators may have changed that.
    shown = "" if key in _MAY_HOLD_SECRETS else f"; it is {_short(given.value)}"
    return f"{given.name}{field} ({given.origin}): {what}{shown}".replace("\n", " ")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
