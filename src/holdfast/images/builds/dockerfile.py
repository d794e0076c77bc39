"""A recipe, with all that it builds upon, as a Dockerfile: for those who build with Docker. Pure.

What the host lends to a build of ours is Docker's business there. Docker's Debian stands for a recipe that begins,
which has a little more in it than the variant ``apt``.
"""

import base64
import json
import shlex
import textwrap
from collections.abc import Sequence

from holdfast.images.builds.recipe import Recipe, RecipeFile
from holdfast.images.layout import HOME, USER_ID
from holdfast.records.services import SERVICES_LABEL, services_to_wire

_EOF = "END_OF_COMMAND"
_PIP = "python3 -m pip install --break-system-packages --no-cache-dir"
_NPM = "npm install --global --prefix /usr/local --no-audit --no-fund"


def text(recipe: Recipe) -> str:
    lines = [
        f"# Made by `holdfast image dockerfile {recipe.name}`, from the recipe; do not edit.",
        f"FROM debian:{recipe.suite}-slim",
    ]
    for part in recipe.chain():
        lines += ["", f"# {part.name}", *_part(part)]
    if recipe.services:
        declared = json.dumps(services_to_wire(recipe.services))
        lines += ["", "# read by `holdfast image import`", f"LABEL {SERVICES_LABEL}={_quoted(declared)}"]
    lines += [
        "",
        "# the session's user",
        f"RUN useradd --uid {USER_ID} --user-group --home-dir {HOME} --create-home --shell /bin/bash {recipe.user}",
        f"WORKDIR {HOME}",
        f"USER {recipe.user}",
    ]
    return "\n".join(lines) + "\n"


def _part(recipe: Recipe) -> list[str]:
    above = recipe.parent.env if recipe.parent else {}
    added = {name: value for name, value in recipe.env.items() if above.get(name) != value}
    lines = [f"ENV {name}={_quoted(value)}" for name, value in added.items()]
    if recipe.packages:
        lines.append("RUN " + _apt(recipe.packages))
    lines += [_file(file) for file in recipe.files]
    installs = [
        *([f"{_PIP} {shlex.join(recipe.pip)}"] if recipe.pip else []),
        *([f"{_NPM} {shlex.join(recipe.npm)}"] if recipe.npm else []),
    ]
    if recipe.build_packages:
        return [*lines, _one_layer(recipe.build_packages, [*installs, *recipe.commands])]
    return [*lines, *(f"RUN {install}" for install in installs), *(_run(command) for command in recipe.commands)]


def _apt(packages: Sequence[str]) -> str:
    return (
        "apt-get update \\\n"
        " && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \\\n"
        + "".join(f"    {shlex.quote(package)} \\\n" for package in packages)
        + " && rm -rf /var/lib/apt/lists/*"
    )


def _run(command: str) -> str:
    """One that has several lines takes BuildKit, which is Docker's own builder since version 23."""
    if "\n" not in command:
        return f"RUN set -eu; {command}"
    return f"RUN <<'{_EOF}' sh -eu\n{textwrap.dedent(command).strip()}\n{_EOF}"


def _one_layer(build_packages: Sequence[str], steps: Sequence[str]) -> str:
    """What is removed in a later layer would stay in the image, so all is done in one."""
    listed = "dpkg-query --show --showformat '${binary:Package}\\n' | LC_ALL=C sort"
    install = "DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends"
    lines = [
        f"{listed} >/tmp/before",
        f"apt-get update && {install} {shlex.join(build_packages)}",
        *(f"(\n{textwrap.dedent(step).strip()}\n)" for step in steps),
        f"{listed} | LC_ALL=C comm -13 /tmp/before - | xargs dpkg --purge",
        "rm -rf /var/lib/apt/lists/* /tmp/before",
    ]
    return f"RUN <<'{_EOF}' sh -eu\n" + "\n".join(lines) + f"\n{_EOF}"


def _file(file: RecipeFile) -> str:
    """With its content in it, so that a Dockerfile needs no files beside it."""
    path = shlex.quote(file.path)
    content = base64.b64encode(file.content).decode()
    return (
        f"RUN mkdir -p {shlex.quote(file.path.rpartition('/')[0] or '/')} "
        f"&& echo {content} | base64 -d >{path} && chmod {file.mode:o} {path}"
    )


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'
