"""Configures git in a sandbox by its environment, so that there is no file in the user's way."""

from collections.abc import Mapping

from holdfast.broker.git.hosts import GitSettings
from holdfast.vocabulary.models import ROOT

PART = "git"
"""The first part of paths at the broker that are for git."""


def git_environment(settings: GitSettings) -> Mapping[str, str]:
    """Return the environment, without any secret. It overrides every configuration file, also the repository's own."""
    entries: list[tuple[str, str]] = []
    for name in settings.hosts:
        here = f"url.{ROOT}/{PART}/{name}/.insteadOf"
        host = name.partition(":")[0]
        entries += [(here, f"https://{name}/"), (here, f"git@{host}:"), (here, f"ssh://git@{host}/")]
    if settings.hosts:
        # The broker is on the sandbox's own loopback address, whatever proxy its other traffic takes; and it never
        # wants a password, so no helper is asked for one.
        entries += [(f"http.{ROOT}/.proxy", ""), (f"credential.{ROOT}.helper", "")]
    entries += [("user.name", settings.user_name)] if settings.user_name else []
    entries += [("user.email", settings.user_email)] if settings.user_email else []
    found = {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_COUNT": str(len(entries))}  # a prompt would wait for ever
    for number, (key, value) in enumerate(entries):
        found |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return found
