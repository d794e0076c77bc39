"""What agents are told: models in the thread's order, rules from several files, and where they work."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from holdfast.agents.permissions import parse
from holdfast.errors import BadInput, ConfigError
from holdfast.images.layout import PATH
from holdfast.records.threads import ThreadRow
from holdfast.threads import options
from holdfast.threads.resolve import briefs
from holdfast.threads.resolve.briefs import Briefs
from holdfast.threads.resolve.repos import directory_of
from holdfast.threads.settings import AgentDefaults
from holdfast.threads.types import Repo, ThreadOptions
from holdfast.vocabulary.models import Model, Wire

pytestmark = pytest.mark.anyio


class Shop:
    """Two providers, three models."""

    @property
    def models(self) -> Sequence[Model]:
        return [Model(provider, name, (Wire.CHAT,)) for provider, name in (("a", "1"), ("a", "2"), ("b", "1"))]


def row(chosen: ThreadOptions | None = None, workspace: Mapping[str, object] | None = None) -> ThreadRow:
    return ThreadRow(
        id="thr_1",
        owner="root",
        key="dm:U1",
        platform="dm",
        agent="fake",
        settings=options.to_json(chosen or ThreadOptions()),
        session_id="ses_1",
        last_activity_at=0,
        created_at=0,
        updated_at=0,
        workspace=workspace,
    )


async def models(chosen: ThreadOptions, **defaults: Sequence[str]) -> list[str]:
    made = Briefs(AgentDefaults(**defaults), Shop())  # type: ignore[arg-type]  # names of its fields
    return [model.id for model in (await made.brief(row(chosen), "default")).models]


async def test_preferred_models_come_first() -> None:
    assert await models(ThreadOptions()) == ["a/1", "a/2", "b/1"]
    assert await models(ThreadOptions(model="b/1", model_preferences=["x/9", "a/2"])) == ["b/1", "a/2", "a/1"]


async def test_only_allowed_models_are_offered() -> None:
    assert await models(ThreadOptions(model="b/1"), allowed_models=["a/*"]) == ["a/1", "a/2"]
    assert await models(ThreadOptions(allowed_models=["a/2", "b/*"]), allowed_models=["a/*"]) == ["a/2"]


async def test_the_rules_are_in_order(tmp_path: Path) -> None:
    (tmp_path / "host.md").write_text("HOUSE\n")
    for name in ("soul.md", "user.md", "tone.md"):
        (tmp_path / name).write_text(f"{name.upper()}\n")
    defaults = AgentDefaults(system_prompt_file=tmp_path / "host.md", persona_dir=tmp_path, persona=["tone.md"])
    repo = Repo("https://example.com/x/kelp.git", "main")
    chosen = ThreadOptions(persona=["user.md", "soul.md"], repo=repo, system_prompt="OWN")
    there = {"session_id": "ses_1", "workdir": "/workspace/kelp"}
    made = Briefs(defaults)
    brief = await made.brief(row(chosen, there), "default")
    assert brief.workdir == "/workspace/kelp"
    host, user, soul, about, own = brief.system_prompt.split("\n\n")
    assert (host, user, soul, own) == ("HOUSE", "USER.MD", "SOUL.MD", "OWN")
    assert "https://example.com/x/kelp.git, branch main" in about
    assert (await made.brief(row(), "default")).system_prompt == "HOUSE\n\nTONE.MD"


async def test_without_files_there_are_the_rules_of_the_house() -> None:
    prompt = (await Briefs(AgentDefaults()).brief(row(), "default")).system_prompt
    assert "/workspace/output/display/" in prompt and "/workspace/uploads/" in prompt


async def test_files_are_read_again_when_they_are_not_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = tmp_path / "host.md"
    host.write_text("OLD")
    made = Briefs(AgentDefaults(system_prompt_file=host))
    assert (await made.brief(row(), "default")).system_prompt == "OLD"
    host.write_text("NEW")
    assert (await made.brief(row(), "default")).system_prompt == "OLD"
    monkeypatch.setattr(briefs, "_FRESH_SECONDS", 0.0)
    assert (await made.brief(row(), "default")).system_prompt == "NEW"
    host.unlink()
    with pytest.raises(ConfigError, match=r"system_prompt_file: .*host\.md cannot be read"):
        await made.brief(row(), "default")


async def test_a_repository_of_the_next_sandbox_is_not_this_ones() -> None:
    chosen = ThreadOptions(repo=Repo("https://example.com/x/kelp"))
    there = {"session_id": "ses_1", "workdir": "/workspace"}
    brief = await Briefs(AgentDefaults()).brief(row(chosen, there), "default")
    assert brief.workdir == "/workspace" and "example.com" not in brief.system_prompt


async def test_the_threads_rules_come_before_the_daemons() -> None:
    defaults = AgentDefaults(permissions=parse(["ask bash:git push*"]))
    brief = await Briefs(defaults).brief(row(ThreadOptions(permissions=["allow bash", "deny webfetch"])), "default")
    assert [str(rule) for rule in brief.permissions] == ["allow bash", "deny webfetch", "ask bash:git push*"]


async def test_the_environment_has_the_agents_first_where_the_host_is_seen() -> None:
    defaults = AgentDefaults(image="host", agents_bin="/opt/agents/bin")
    made = Briefs(defaults, environments=lambda account: {"GIT_AUTHOR_NAME": account.owner})
    brief = await made.brief(row(), "default")
    assert brief.environment["GIT_AUTHOR_NAME"] == "root"
    assert brief.environment["PATH"] == f"/opt/agents/bin:{PATH}"
    chosen = ThreadOptions(env={"PATH": "/mine"})
    assert (await made.brief(row(chosen), "default")).environment["PATH"] == "/opt/agents/bin:/mine"
    assert "PATH" not in (await made.brief(row(ThreadOptions(image="python")), "default")).environment


@pytest.mark.parametrize(
    ("chosen", "complaint"),
    [
        (ThreadOptions(permissions=["allow", "maybe bash"]), "is no rule"),
        (ThreadOptions(allowed_models=["a/[xy]"]), "only \\* stands for something"),
        (ThreadOptions(system_prompt="x" * 100_001), "system_prompt: at most"),
        (ThreadOptions(persona=["none.md"]), "persona: there is no none.md"),
        (ThreadOptions(persona=["../secret"]), "is no file of persona_dir"),
        (ThreadOptions(persona=[".hidden"]), "is no file of persona_dir"),
        (ThreadOptions(repo=Repo("ext::sh -c id")), "repo.url: must be"),
        (ThreadOptions(repo=Repo("https://token@example.com/x/y")), "must hold no user or password"),
        (ThreadOptions(repo=Repo("ssh://git:pw@example.com/x/y")), "must hold no user or password"),
        (ThreadOptions(repo=Repo("https://example.com")), "must end in the name"),
        (ThreadOptions(repo=Repo("https://example.com/x", branch="--upload-pack=id")), "repo.branch"),
        (ThreadOptions(repo=Repo("https://example.com/x", ref="a b")), "repo.ref"),
    ],
)
async def test_what_cannot_be_is_refused(tmp_path: Path, chosen: ThreadOptions, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        await Briefs(AgentDefaults(persona_dir=tmp_path)).check(chosen)


async def test_what_can_be_is_fine(tmp_path: Path) -> None:
    (tmp_path / "soul.md").write_text("calm")
    for url in ("https://example.com/x/y.git", "ssh://git@example.com/x/y", "file:///workspace/y/.git"):
        chosen = ThreadOptions(repo=Repo(url, "feature/x", "v1.0"), persona=["soul.md"], permissions=["ask *"])
        await Briefs(AgentDefaults(persona_dir=tmp_path)).check(chosen)
        assert directory_of(Repo(url)) == "/workspace/y"


async def test_what_changes_is_seen() -> None:
    shelf = [Model("a", "1", (Wire.CHAT,))]

    class Changing:
        @property
        def models(self) -> Sequence[Model]:
            return tuple(shelf)

    made = Briefs(AgentDefaults(), Changing())
    first = await made.brief(row(), "default")
    assert (await made.brief(row(), "default")) == first
    shelf.append(Model("b", "1", (Wire.CHAT,)))
    assert [model.id for model in (await made.brief(row(), "default")).models] == ["a/1", "b/1"]
    assert [model.id for model in (await made.brief(row(ThreadOptions(model="b/1")), "default")).models] == [
        "b/1",
        "a/1",
    ]
    assert (await made.brief(row(ThreadOptions(permissions=["deny webfetch"])), "default")).permissions
