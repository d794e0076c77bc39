"""Settings of agents and models: what they take, what they say of what they do not, and what threads get of them."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from holdfast.broker.accounts import SpendingLimits
from holdfast.daemon.config.config import Config
from holdfast.daemon.wiring.threads import thread_settings


def test_threads_get_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "soul.md").write_text("calm")
    settings = {
        "default_model": "a/1",
        "model_preferences": "a/2, b/3",
        "allowed_models": '["a/*", "b/3"]',
        "thread_limits": '{"requests_per_minute": 5}',
        "key_limits": {
            "default": {"spend_usd": 50},
            "ann": {"tokens_per_minute": 1000, "spend_usd": None, "allowed_models": "demo/*, x/y"},
        },
        "permissions": ["deny webfetch", "ask bash:git push*"],
        "system_prompt_file": str(tmp_path / "soul.md"),
        "persona_dir": str(tmp_path),
        "persona": "soul.md",
        "default_image": "python",
    }
    found = thread_settings(Config.model_validate(settings)).agents
    assert (found.model, found.model_preferences, found.allowed_models) == ("a/1", ("a/2", "b/3"), ("a/*", "b/3"))
    assert found.thread_limits == SpendingLimits(requests_per_minute=5)
    assert found.owner_models == {"default": ("*",), "ann": ("demo/*", "x/y")}
    assert found.owner_limits == {
        "default": SpendingLimits(spend_usd=50.0),
        "ann": SpendingLimits(tokens_per_minute=1000),
    }
    assert [str(rule) for rule in found.permissions] == ["deny webfetch", "ask bash:git push*"]
    assert (found.system_prompt_file, found.persona_dir) == (tmp_path / "soul.md", tmp_path)
    assert (found.persona, found.image) == (("soul.md",), "python")


def test_without_settings_everything_is_allowed() -> None:
    found = thread_settings(Config()).agents
    assert (found.model, found.allowed_models, found.thread_limits, found.owner_limits) == (
        None,
        ("*",),
        SpendingLimits(),
        {},
    )


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"allowed_models": ["a/[12]"]}, r"only \* stands for something"),
        ({"thread_limits": "ten dollars"}, "must be JSON"),
        ({"thread_limits": {"spend": 1}}, "not permitted"),
        ({"thread_limits": {"spend_usd": -1}}, "greater than or equal to 0"),
        ({"key_limits": {"ann": {"requests_per_minute": True}}}, "must be a number"),
        ({"permissions": ["perhaps bash"]}, "'perhaps bash' is no rule"),
        ({"system_prompt_file": "/nowhere/rules.md"}, "there is no such file"),
        ({"system_prompt_file": "rules.md"}, "must be an absolute path"),
        ({"persona_dir": "/nowhere"}, "there is no such directory"),
        ({"persona": ["soul.md"]}, "must be files in persona_dir, which is not set"),
        ({"persona_dir": "/", "persona": ["etc/passwd"]}, "etc/passwd: must be files in persona_dir"),
    ],
)
def test_what_they_do_not_take(settings: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Config.model_validate(settings)
