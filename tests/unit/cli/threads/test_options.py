"""The options of a new thread: all that the API has, and each mistake told."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from holdfast.api.threads.option_models import IdleModel, OptionsIn, RepoModel, ThreadLimitsIn
from holdfast.cli.threads.options import IDLE, LIMITS, thread_options, wishes

EVERYTHING = (
    *("--agent", "pi", "--image", "agent", "--repo", "https://git.example/x.git", "--branch", "main", "--ref", "v1"),
    *("--allow", "pypi.org", "-e", "A=b", "--meta", "k=v", "--limit", "memory-mb=1024", "--limit", "spend_usd=2.5"),
    *("--permission", "ask bash:git push*", "--idle", "pause=30m", "--idle", "destroy=never", "--persona", "kind"),
    *("--system-prompt", "be brief", "--fallback-model", "a/b", "--allow-model", "a/*", "--no-retry-broken-streams"),
    *("--preview-port", "3000"),
)


def parsed(*words: str) -> dict[str, Any]:
    got: list[dict[str, Any]] = []

    @click.command()
    @thread_options
    def command(**given: Any) -> None:
        got.append(wishes(given))

    done = CliRunner().invoke(command, words)
    if done.exit_code:
        raise ValueError(done.output)
    return got[0]


def test_every_option_of_the_api_can_be_said() -> None:
    """But the model, which each verb has itself: a message may have one of its own."""
    said = parsed(*EVERYTHING)
    assert set(said) | {"network", "model"} == set(OptionsIn.model_fields)
    options = OptionsIn.model_validate(said).options()
    assert (options.memory_mb, options.limits and options.limits.spend_usd) == (1024, 2.5)
    assert options.idle is not None
    assert (options.idle.pause_after_seconds, options.idle.destroy_after_seconds) == (1800.0, None)
    assert set(LIMITS) == set(ThreadLimitsIn.model_fields)
    assert set(IDLE.values()) == set(IdleModel.model_fields)
    assert set(said["repo"]) == set(RepoModel.model_fields)


def test_what_was_not_said_is_left_out(tmp_path: Path) -> None:
    assert parsed() == {}
    (tmp_path / "prompt").write_text("from a file")
    assert parsed("--network", "full", "--system-prompt", f"@{tmp_path}/prompt") == {
        "network": "full",
        "system_prompt": "from a file",
    }


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--limit", "memory=1"), "memory_mb"),
        (("--limit", "pids=many"), "no number"),
        (("--idle", "nap=3"), "hibernate"),
        (("--idle", "pause=soon"), "30m"),
        (("--branch", "main"), "--repo"),
        (("--network", "none", "--allow", "pypi.org"), "exclude"),
        (("-e", "novalue"), "NAME=VALUE"),
    ],
)
def test_mistakes(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parsed(*words)
