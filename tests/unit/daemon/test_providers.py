"""The setting ``providers``, and what is made of it."""

import re
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from holdfast.broker.accounts import Tokens
from holdfast.broker.models.providers.catalogue import Catalogue, ProviderKind
from holdfast.broker.models.providers.known import KNOWN
from holdfast.broker.secrets import CommandKey, EnvKey, FileKey
from holdfast.daemon.config.config import Config
from holdfast.daemon.wiring.models import make_catalogue
from holdfast.vocabulary.models import Wire


def catalogue(providers: object = None, **environment: str) -> Catalogue:
    return make_catalogue(Config.model_validate({"providers": providers}), environment)


def test_without_configuration_the_environment_says() -> None:
    found = catalogue(OPENAI_API_KEY="x", ANTHROPIC_API_KEY="y", MISTRAL_API_KEY="")
    assert [one.name for one in found.providers] == ["anthropic", "openai"]
    assert found.models[0].id == "anthropic/claude-sonnet-5-5"


def test_without_any_key_there_is_the_demo() -> None:
    found = catalogue()
    assert [one.name for one in found.providers] == ["demo"]
    assert found.models[0].id == "demo/demo-1" and set(found.models[0].wires) == set(Wire)
    price = found.price(found.models[0])
    assert price is not None and price.cost(Tokens(1000, 1000)) == 0.0


def test_what_is_configured_is_all_there_is() -> None:
    found = catalogue({"xai": None, "local": {"kind": "openai-compatible", "base_url": "http://10.0.0.5:8000/v1/"}})
    assert [one.name for one in found.providers] == ["xai", "local"]
    xai, local = found.providers
    assert xai.base_url == "https://api.x.ai/v1" and isinstance(xai.key, EnvKey) and Wire.RESPONSES in xai.wires
    assert local.base_url == "http://10.0.0.5:8000/v1" and local.key is None and local.wires == {Wire.CHAT}
    model = found.model("local/some/model:7b")
    assert model is not None and (model.name, model.wires) == ("some/model:7b", (Wire.CHAT,))
    assert found.price(model) is None
    assert found.model("nobody/x") is None and found.model("local/") is None


@pytest.mark.parametrize(
    ("kind", "url", "base"),
    [
        ("anthropic", "https://a.example/v1", "https://a.example"),
        ("anthropic", "https://a.example/", "https://a.example"),
        ("gemini", "https://a.example/v1beta", "https://a.example"),
        ("openai", "https://a.example/v1", "https://a.example/v1"),
    ],
)
def test_the_version_in_a_base_url(kind: str, url: str, base: str) -> None:
    assert catalogue({"p": {"kind": kind, "base_url": url}}).providers[0].base_url == base


def test_models_and_prices_of_ones_own() -> None:
    price = {"input": 1, "output": 2, "cached": 0.5}
    models = [{"name": "gpt-6-luna"}, {"name": "ours", "price": price, "wires": "openai-chat", "context_tokens": 5}]
    found = catalogue({"openai": {"models": models}})
    assert [model.name for model in found.models][:3] == ["gpt-6-luna", "ours", "gpt-6.1-sol"]
    ours = found.model("openai/ours")
    assert ours is not None and (ours.wires, ours.context_tokens) == ((Wire.CHAT,), 5)
    assert found.price(ours) is not None and found.price(found.models[0]) is not None
    cost = found.price(ours)
    assert cost is not None and cost.cost(Tokens(1_000_000, 1_000_000, 400_000)) == pytest.approx(0.6 + 0.2 + 2)


def test_a_model_of_some_day_costs_what_the_model_costs() -> None:
    found = catalogue({"anthropic": None})
    price = found.price(found.models[0])
    for name in ("claude-sonnet-5-5-20261007", "claude-sonnet-5-5@2026-10-07", "claude-sonnet-5-5-latest"):
        model = found.model(f"anthropic/{name}")
        assert model is not None and found.price(model) == price
    other = found.model("anthropic/claude-sonnet-5-50")
    assert other is not None and found.price(other) is None


@pytest.mark.parametrize(
    ("key", "kind"),
    [({"env": "A"}, EnvKey), ({"file": "/a/b"}, FileKey), ({"command": ["pass", "show", "x"]}, CommandKey)],
)
def test_where_keys_come_from(key: object, kind: type) -> None:
    assert isinstance(catalogue({"openai": {"key": key}}).providers[0].key, kind)


@pytest.mark.parametrize(
    ("providers", "what"),
    [
        ({"mine": {}}, "needs a kind and a base_url"),
        ({"mine": {"kind": "openai"}}, "needs a kind and a base_url"),
        ({"openai": {"key": {}}}, "exactly one of env, file and command"),
        ({"openai": {"key": {"env": "A", "file": "/b"}}}, "exactly one of env, file and command"),
        ({"openai": {"key": {"file": "b"}}}, "absolute path"),
        ({"openai": {"key": "sk-1234"}}, "must say where the key is"),
        ({"openai": {"base_url": "ftp://x"}}, "must be a URL"),
        ({"openai": {"base_url": "https://u:p@x/"}}, "must be a URL"),
        ({"openai": {"base_url": "http://a.example/v1", "key": {"env": "A"}}}, "must be https"),
        ({"Mine": {"kind": "openai", "base_url": "https://x"}}, "pattern"),
        ({"mine": {"kind": "demo", "base_url": "https://x"}}, "only one demo"),
        ("{", "must be JSON"),
    ],
)
def test_what_cannot_be(providers: object, what: str) -> None:
    with pytest.raises(ValidationError, match=what) as error:
        Config.model_validate({"providers": providers})
    assert "sk-1234" not in str(error.value)


def test_the_example_in_the_documentation_is_one() -> None:
    page = (Path(__file__).parents[3] / "docs" / "models.md").read_text()
    found = re.search(r"```yaml\n(providers:.*?)```", page, re.DOTALL)
    assert found is not None
    offered = make_catalogue(Config.model_validate(yaml.safe_load(found[1])), {})
    assert [one.name for one in offered.providers] == ["anthropic", "openai", "local"]
    assert {f"`{name}` | `{known.key_variable}`" for name, known in KNOWN.items() if known.key_variable} <= set(
        re.findall(r"`[a-z]+` \| `[A-Z_]+`", page)
    )


def test_what_is_known_makes_sense() -> None:
    for name, known in KNOWN.items():
        assert known.offers, name
        for offer in known.offers:
            assert offer.model.provider == name and offer.price is not None
            assert set(offer.model.wires) <= set(known.wires)
        if known.kind is not ProviderKind.DEMO:
            assert known.base_url.startswith("https://") and known.key_variable
