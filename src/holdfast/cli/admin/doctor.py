"""``holdfast doctor``: look at the machine and say what is missing."""

from importlib import import_module
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import config_file, configured, show_json, wants_json

if TYPE_CHECKING:  # its module loads asyncio, and --help stays fast
    from holdfast.drivers.base import Check


@click.command("doctor")
@configured
def command() -> int:
    """Check this machine, one line per check with its remedy; exit 1 if sandboxes cannot work here."""
    import asyncio  # here, so that --help stays fast

    loaded = import_module("holdfast.daemon.config.load").load_config(config_file())
    checks: list[Check] = asyncio.run(import_module("holdfast.daemon.doctor").run_checks(loaded))
    if wants_json():
        show_json({"ok": healthy(checks), "checks": checks})
    else:
        for check in checks:
            click.echo(line(check))
    return 0 if healthy(checks) else 1


def healthy(checks: "list[Check]") -> bool:
    return all(check.ok or not check.fatal for check in checks)


def line(check: "Check") -> str:
    """``✓`` fine, ``✗`` must be mended, ``!`` works without it, but less well."""
    mark = "✓" if check.ok else "✗" if check.fatal else "!"
    remedy = f" — {check.remedy}" if check.remedy and not check.ok else ""
    return f"{mark} {check.name}: {check.detail}{remedy}"
