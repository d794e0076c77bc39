"""What the pages state as a fact is what the code has: defaults, limits, fields, options, kinds and codes."""

import json
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import click
import pytest
from pydantic import BaseModel

from holdfast.agents.known import KNOWN as AGENTS
from holdfast.agents.scripted.inside import script
from holdfast.api.admin import keys
from holdfast.api.exec import models as exec_models
from holdfast.api.sessions import copy_models, models
from holdfast.api.threads import option_models, usage_models
from holdfast.broker.models.providers.known import KNOWN as PROVIDERS
from holdfast.cli.main import VERBS, cli
from holdfast.daemon.config.config import Config
from holdfast.daemon.wiring.wiring import MOST_PIDS
from holdfast.sessions.telling.event_kinds import EventKind as SessionEvent
from holdfast.store.threads.news import ThreadKind
from holdfast.vocabulary.turn_events import Kind as TurnEvent
from support.api_host import scopes
from support.doc_blocks import blocks
from unit.test_docs import DOCS, ROOT, ours


def page(name: str) -> str:
    return (ROOT / "README.md" if name == "README" else DOCS / f"{name}.md").read_text()


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table below this heading, without its own head."""
    below = text.split(f"{heading}\n", 1)[1]
    lines = re.split(r"\n\n(?!\|)", below[below.index("\n|") + 1 :], maxsplit=1)[0].splitlines()
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:] if line[:1] == "|"]


# The configuration


IN_WORDS = {
    "made at first start": None,
    "where each request was sent to": None,
    "nobody": (),
    "nothing": (),
    "see below": ...,
    "all": ...,
    "none": ...,
    "no limit": None,
}
"""Defaults that the table tells in words, and what they are; ``...``: nothing that could be compared."""


@pytest.mark.parametrize("row", rows(page("configuration"), "## Keys"), ids=lambda row: row[0])
def test_a_default_in_the_table_is_that_of_the_configuration(row: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_STATE_DIR", raising=False)
    config = Config()
    key = row[0].strip("`")
    value: Any = MOST_PIDS if key == "max_pids" else getattr(config, key)
    told = row[2]
    if found := re.fullmatch(r"`([^`]+)`", told):
        if found[1] in Config.model_fields:
            assert value == getattr(config, found[1])
        else:
            shown = value.to_wire() if hasattr(value, "to_wire") else value
            texts = ", ".join(shown) if isinstance(shown, tuple) else str(shown).lower()
            assert found[1].lower() == texts
    elif told == "none":
        assert value in (None, (), {}) or not any(dict(value).values())
    elif told in IN_WORDS and IN_WORDS[told] is not ...:
        assert value == IN_WORDS[told]


def test_the_readmes_example_has_the_defaults() -> None:
    told = next(block.text for block in blocks(ROOT / "README.md") if block.language == "yaml")
    for key, value in re.findall(r"^(\w+): (\d+)\s", told, re.MULTILINE):
        assert str(getattr(Config(), key)) == value


# The command line


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for one in command.commands:
            yield from commands(command.commands[one], f"{name} {one}")


EVERY = [
    found for verb, module in VERBS.items() for found in commands(import_module(f"holdfast.cli.{module}").command, verb)
]


@pytest.mark.parametrize("name, command", EVERY, ids=[name for name, _ in EVERY])
def test_every_option_is_in_the_manual(name: str, command: click.Command) -> None:
    manual = page("cli")
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    missing = [option.opts for option in options if not any(_told(word, manual) for word in option.opts)]
    assert [names for names in missing if names != ["--help"]] == []


def _told(option: str, manual: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", manual) is not None


@pytest.mark.parametrize("name, command", EVERY, ids=[name for name, _ in EVERY])
@pytest.mark.filterwarnings("error")
def test_no_option_is_there_twice(name: str, command: click.Command) -> None:
    """It would be warned of on every use."""
    words = [word for parameter in command.params for word in parameter.opts if isinstance(parameter, click.Option)]
    assert sorted(words) == sorted(set(words))
    assert "--help" in command.get_help(click.Context(command, parent=click.Context(cli)))


# The API


SAMPLES: dict[str, type[BaseModel]] = {
    "Sessions": models.SessionOut,
    "GET /v1/sessions/{id}/stats": models.StatsOut,
    "POST /v1/sessions/{id}/exec": exec_models.ExecOut,
    "Snapshots and workspaces": copy_models.SnapshotOut,
    "Keys": keys.KeyAdded,
    "GET /v1/usage": usage_models.UsageReport,
}


@pytest.mark.parametrize("heading, model", SAMPLES.items(), ids=SAMPLES)
def test_an_answer_in_the_manual_has_the_fields_of_the_api(heading: str, model: type[BaseModel]) -> None:
    below = re.split(rf"^##+ {re.escape(heading)}$", page("api"), maxsplit=1, flags=re.MULTILINE)[1]
    sample = re.search(r"^```json\n(.*?)^```$", below, re.MULTILINE | re.DOTALL)
    assert sample is not None
    assert set(json.loads(sample[1])) == set(model.model_fields)


def test_the_stats_are_the_same_on_both_pages() -> None:
    shown = [re.search(r'^\{"cpu_seconds".*?\}$', page(name), re.MULTILINE | re.DOTALL) for name in ("api", "limits")]
    assert shown[0] is not None
    assert shown[1] is not None
    assert json.loads(shown[0][0]) == json.loads(shown[1][0])


def test_every_field_of_a_create_is_documented() -> None:
    told = {row[0].strip("`") for row in rows(page("api"), "### POST /v1/sessions")}
    assert told == set(models.SessionCreate.model_fields)
    line = next(line for line in page("api").splitlines() if line.startswith("| `POST /v1/sessions` "))
    assert set(re.findall(r"(\w+)\?", line)) == told


def test_every_field_of_a_result_is_in_the_overview() -> None:
    line = next(line for line in page("api").splitlines() if line.startswith("| `POST /v1/sessions/{id}/exec` "))
    answer = line.split("|")[3]
    assert set(re.findall(r"\w+", answer)) == set(exec_models.ExecOut.model_fields)


def test_every_option_of_a_thread_is_documented() -> None:
    fields = set(option_models.OptionsIn.model_fields)
    for name, heading in (("threads", "## Options"), ("api", "`options`, all of which may be left out")):
        text = page(name)
        heading = next(line for line in text.splitlines() if line.startswith(heading))
        told = {word for row in rows(text, heading) for word in re.findall(r"`(\w+)`", row[0])}
        assert told == fields, name


def test_every_route_is_on_a_page() -> None:
    every = " ".join(path.read_text() for path in (ROOT / "README.md", *DOCS.glob("*.md")))
    for route in scopes():
        words = [part for part in route.split("/")[1:] if not part.startswith("{")]
        assert re.search(rf"\b{re.escape(words[-1])}\b", every), route


def test_no_error_is_invented() -> None:
    told = [row[0].strip("`") for row in rows(page("api"), "## Errors")]
    assert len(told) == len(set(told)), "one stands there twice"
    assert set(told) - {"method_not_allowed"} <= {error.code for error in ours()}  # that one is the framework's


# Kinds, names and words


def test_every_kind_of_event_is_documented() -> None:
    told = {word for row in rows(page("events"), "# Events") for word in re.findall(r"`([\w.]+)`", row[0])}
    assert told == {kind.value for kind in (*SessionEvent, *ThreadKind)}


def test_every_event_of_a_turn_is_documented() -> None:
    told = {word for row in rows(page("threads"), "## Events") for word in re.findall(r"`([\w.-]+)`", row[0])}
    assert told == {kind.value for kind in TurnEvent}


def test_every_agent_is_documented() -> None:
    told = {word for row in rows(page("agents"), "# Agents") for word in re.findall(r"`([\w-]+)`", " ".join(row[:2]))}
    assert set(AGENTS) <= told
    for agent, known in AGENTS.items():
        if known.memory_mb not in (None, 768):
            assert re.search(rf"\b{known.memory_mb} MB", page("agents")), agent


def test_every_provider_is_documented() -> None:
    told = {row[0].strip("`"): row[1].strip("`") for row in rows(page("models"), "## Providers")}
    assert set(told) == set(PROVIDERS)
    for name, variable in told.items():
        assert variable == (PROVIDERS[name].key_variable or "none"), name


def test_every_word_of_the_scripted_agent_is_documented() -> None:
    told = {
        word.split()[0] for row in rows(page("agents"), "## `scripted`") for word in re.findall(r"`([^`]+)`", row[0])
    }
    told |= set(re.findall(r"`(ask-within) ", page("agents")))
    assert told == set(script.VERBS)


# Numbers

BOUNDS: list[tuple[str, str, str, int | float]] = [
    ("api", r"at most (\d+) values, 1000 of them named", "holdfast.api.edge.json_bounds:MOST_VALUES", 1),
    ("api", r"5000 values, (\d+) of them named", "holdfast.api.edge.json_bounds:MOST_NAMES", 1),
    ("api", r"named, (\d+) levels deep", "holdfast.api.edge.json_bounds:MOST_DEPTH", 1),
    ("api", r"environment of its shells; at most (\d+) KB", "holdfast.sessions.create.choices:_MAX_ENV_BYTES", 1024),
    ("api", r"up to (\d+) notes of yours", "holdfast.api.wire.text:METADATA_KEYS", 1),
    ("api", r"notes of yours, (\d+) KB in all", "holdfast.api.wire.text:METADATA_BYTES", 1024),
    ("api", r"The last (\d+) results", "holdfast.runner.shell.execs:KEEP_RESULTS", 1),
    ("api", r"results, (\d+) MB in all", "holdfast.runner.shell.execs:KEEP_BYTES", 1 << 20),
    ("api", r"`cmd` over (\d+) MB", "holdfast.api.exec.models:MAX_CMD_BYTES", 1 << 20),
    ("api", r"more than (\d+) headers", "holdfast.daemon.server.doorkeeper:MOST_HEADERS", 1),
    ("configuration", r"at most \d+ headers and (\d+) KB", "holdfast.daemon.server.doorkeeper:MOST_HEAD_BYTES", 1024),
    (
        "configuration",
        r"each such time, (\d+) KB of a body",
        "holdfast.daemon.server.doorkeeper:LEAST_BODY_BYTES",
        1024,
    ),
    ("configuration", r"at least (\d+) printable ASCII", "holdfast.daemon.config.webhooks:MIN_KEY_LENGTH", 1),
    ("files", r"`limit` is (\d+) unless", "holdfast.api.files.entries:DEFAULT_PAGE", 1),
    ("files", r"given, at most (\d+);", "holdfast.api.files.entries:MAX_PAGE", 1),
    ("files", r"At most (\d+) watches", "holdfast.sessions.use.files:MAX_WATCHES", 1),
    ("files", r"and (\d+) folders per watch", "holdfast.runner.tasks.watch:MAX_FOLDERS", 1),
    ("files", r"for at most (\d+) days", "holdfast.api.files.models:WEEK", 86400),
    ("images", r"refused beyond (\d+) GB", "holdfast.images.unpack.budget:MAX_BYTES", 1 << 30),
    ("images", r"GB or (\d+) million", "holdfast.images.unpack.budget:MAX_ENTRIES", 1_000_000),
    ("network", r"1 to (\d+) patterns", "holdfast.records.network:MAX_PATTERNS", 1),
    ("network", r"127\.0\.0\.1:(\d+)` inside", "holdfast.broker.egress.egress:PORT", 1),
    ("network", r"the session has (\d+) connections", "holdfast.broker.egress.egress:MAX_CONNECTIONS", 1),
    ("network", r"A session has (\d+) look-ups", "holdfast.network.names:MOST_AT_ONCE", 1),
    ("processes", r"(\d+) may run at a time", "holdfast.runner.processes.table:MAX_RUNNING", 1),
    ("processes", r"the last (\d+) that ended", "holdfast.runner.processes.table:KEEP_ENDED", 1),
    ("processes", r"output \(the newest (\d+) MB\)", "holdfast.sessions.use.processes:OUTPUT_BYTES", 1 << 20),
    ("processes", r"taken nothing for (\d+) s", "holdfast.runner.output:STALLED_SECONDS", 1),
    ("shell", r"A session has up to (\d+),", "holdfast.runner.service:MAX_SHELLS", 1),
    ("shell", r"pipes of the (\d+) latest", "holdfast.runner.shell.shell:MAX_BACKGROUND_PIPES", 1),
    ("shell", r"State is at most (\d+) MB", "holdfast.runner.shell.command:STATE_LIMIT", 1 << 20),
    ("how-it-works", r"limit \((\d+) MB header", "holdfast.protocol.frames:MAX_HEADER", 1 << 20),
    ("how-it-works", r"header, (\d+) MB\s+body", "holdfast.protocol.frames:MAX_BODY", 1 << 20),
    ("how-it-works", r"within (\d+) s, at most 64 KB", "holdfast.link.connection:HELLO_SECONDS", 1),
    ("how-it-works", r"Files up to (\d+) MB travel", "holdfast.protocol.messages:INLINE_FILE_BYTES", 1 << 20),
    ("how-it-works", r"every (\d+) s at last, for ever", "holdfast.runner.line.control:RETRY_SECONDS", 1),
    ("isolation", r"; (\d+) connections per session", "holdfast.link.hub:MAX_CONNECTIONS", 1),
    ("isolation", r"\| terminals \| (\d+) ", "holdfast.drivers.oci.config:_TERMINALS", 1),
    ("events", r"any 2xx within (\d+) seconds", "holdfast.sessions.telling.webhooks:SEND_SECONDS", 1),
    ("events", r"up to (\d+) seconds, each", "holdfast.sessions.telling.webhook:LONGEST_RETRY_SECONDS", 1),
    ("events", r"Texts are cut after ([\d,]+) characters", "holdfast.store.threads.news:_MOST_TEXT", 1),
    ("models", r"A request has at most (\d+) MB", "holdfast.broker.models.intake.intake:MOST_BYTES", 1 << 20),
    ("models", r"KB, ([\d,]+) values in lists", "holdfast.broker.models.intake.weight:MOST_PARTS", 1),
    ("models", r"under way (\d+) MB;", "holdfast.broker.models.intake.room:SESSION_BYTES", 1 << 20),
    ("models", r"more than (\d+) MB a second", "holdfast.broker.models.intake.room:BYTES_PER_SECOND", 1 << 20),
    ("models", r"print the key within (\d+) s", "holdfast.broker.secrets:COMMAND_SECONDS", 1),
    ("threads", r"^1 to (\d+) letters, digits", "holdfast.vocabulary.thread_keys:MAX_KEY", 1),
    ("limits", r"and ([\d,]+) processes\. They hold", "holdfast.daemon.wiring.wiring:MOST_PIDS", 1),
    ("runbook", r"of one kind\s+(\d+) at once", "holdfast.daemon.log_limits:BURST", 1),
    ("runbook", r"and ([\d,]+) at once and then 50", "holdfast.daemon.log_limits:BURST_OF_ALL", 1),
    ("runbook", r"cut after\s+([\d,]+) characters", "holdfast.daemon.log_limits:MAX_TEXT", 1),
    ("agents", r"after ([a-z]+) failures within ten minutes", "holdfast.agents.supervisor.breaker:MOST_FAILURES", 1),
    ("sdk", r"retries=(\d+)\)", "holdfast.sdk.client:DEFAULT_RETRIES", 1),
    ("sdk", r"timeout=(\d+)\.0", "holdfast.sdk.client:DEFAULT_SECONDS", 1),
]
"""Page, a number in a sentence of it, the constant that it is, and how many of the code's units are one of the page."""
IN_LETTERS = {"three": "3", "five": "5", "ten": "10"}


@pytest.mark.parametrize("name, sentence, constant, unit", BOUNDS, ids=[f"{one[0]}-{one[2]}" for one in BOUNDS])
def test_a_number_on_a_page_is_that_of_the_code(name: str, sentence: str, constant: str, unit: int) -> None:
    told = re.search(sentence, page(name), re.MULTILINE)
    assert told is not None, f"docs/{name}.md does not say any more: {sentence}"
    module, _, attribute = constant.partition(":")
    value = getattr(import_module(module), attribute)
    number = value[-1] if isinstance(value, tuple) else value
    assert float(IN_LETTERS.get(told[1], told[1]).replace(",", "")) * unit == float(number)
