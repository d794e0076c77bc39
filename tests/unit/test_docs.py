"""The documentation keeps up with the code: no error code, verb or setting is missing, and no link leads nowhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.main import VERBS
from holdfast.daemon.config.config import Config
from holdfast.daemon.config.load import env_name
from holdfast.errors import HoldfastError

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def tree(root: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


def ours() -> list[type[HoldfastError]]:
    """The classes of the package; a test may have made one of its own."""
    return [error for error in tree(HoldfastError) if error.__module__ == "holdfast.errors"]


def anchors(page: Path) -> set[str]:
    """How GitHub names the headings of a page."""
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(FENCE.sub("", page.read_text())))
    return {text.strip().replace(" ", "-") for text in words}


@pytest.mark.parametrize("error", ours(), ids=lambda error: error.code)
def test_every_error_is_in_the_table_with_its_status(error: type[HoldfastError]) -> None:
    row = f"| `{error.code}` | {error.status} |"
    assert row in (DOCS / "api.md").read_text(), f"docs/api.md has no row that begins with {row}"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_in_the_manual(verb: str) -> None:
    for page in (DOCS / "cli.md",):
        assert re.search(rf"`holdfast {verb}\b", page.read_text()), f"{page.name} does not show `holdfast {verb}`"


@pytest.mark.parametrize("key", Config.model_fields)
def test_every_setting_is_documented(key: str) -> None:
    row = f"| `{key}` | `{env_name(key)}` |"
    assert row in (DOCS / "configuration.md").read_text(), f"docs/configuration.md has no row that begins with {row}"


def test_every_proof_that_an_attack_is_stopped_is_there() -> None:
    """The last column of the tables of attacks in docs/isolation.md names files of tests, or of drivers' suites."""
    rows = (DOCS / "isolation.md").read_text().partition("## Attacks")[2].splitlines()
    named = [
        file for row in rows if row.startswith("| ") for file in re.findall(r"`([\w/]+\.py)`", row.split(" | ")[-1])
    ]
    assert len(named) > 20
    places = (ROOT / "tests", ROOT / "src/holdfast")
    assert [file for file in named if not any((place / file).exists() for place in places)] == []


def test_every_proof_of_a_failure_is_a_test() -> None:
    """The links of docs/failures.md name a test of the file that they lead to."""
    named = re.findall(r"\[(test_\w+)\]\(\.\./(tests/[\w/]+\.py)\)", (DOCS / "failures.md").read_text())
    assert len(named) > 40
    assert [test for test, file in named if f"def {test}(" not in (ROOT / file).read_text()] == []


def test_every_decision_is_listed() -> None:
    listed = (DOCS / "adr" / "README.md").read_text()
    records = sorted(path.name for path in (DOCS / "adr").glob("[0-9]*.md"))
    assert records, "there are no decisions"
    assert [name for name in records if f"({name})" not in listed] == []
    numbers = [name[:4] for name in records]
    assert len(numbers) == len(set(numbers)), "two decisions have the same number"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        place = (page.parent / name).resolve() if name else page
        if not place.exists() or (anchor and anchor not in anchors(place)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_not_empty_and_have_a_title(page: Path) -> None:
    assert page.read_text().startswith("# "), f"{page.name} has no title"
