"""The extension that asks, in a real JavaScript engine: it must decide as the host's rules do."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.agents.permissions import decide, parse, shown
from holdfast.agents.pi import extension

NODE = shutil.which("node", path="/usr/local/lib/holdfast-agents/bin:/usr/local/bin:/usr/bin")
RULES = (
    "allow bash:git status*",
    "deny bash:*[!a-c]x",
    "ask bash:git pu?h*",
    "deny edit:/etc/*.[ch]onf",
    "ask read:[]^]*",
    "deny search:a.b+(c){2}$[",
    "ask read:\\d",
    "ask other",
    "allow *",
)
CALLS = (
    ("bash", "git status -s"),
    ("bash", "git push\n--force"),
    ("bash", "git pull"),
    *(("bash", f"{letter}x") for letter in "abcd-]\n"),
    ("edit", "/etc/a/b.conf"),
    ("edit", "/etc/b.honf"),
    ("edit", "/etc/b.xonf"),
    ("read", "]x"),
    ("read", "^"),
    ("read", "\\d"),
    ("read", "7"),
    ("search", "a.b+(c){2}$["),
    ("search", "aXb"),
    ("other", "anything"),
    ("task", ""),
    ("bash", "ünï\U0001f600x"),
)


@pytest.mark.skipif(NODE is None, reason="there is no node here")
def test_it_decides_as_the_host_does(tmp_path: Path) -> None:
    rules = parse(RULES)
    (tmp_path / "x.mjs").write_text(extension.source(rules))
    script = (
        "import { decide } from './x.mjs';"
        f"console.log(JSON.stringify({json.dumps(CALLS)}.map(([k, a]) => decide(k, a)?.action ?? 'allow')))"
    )
    (tmp_path / "main.mjs").write_text(script)
    assert NODE is not None
    done = subprocess.run([NODE, "main.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True)
    ours = [decide(rules, kind, argument).value for kind, argument in CALLS]
    assert dict(zip(CALLS, json.loads(done.stdout), strict=True)) == dict(zip(CALLS, ours, strict=True))
    assert len(set(ours)) == 3  # the sample tells something


@pytest.mark.skipif(NODE is None, reason="there is no node here")
def test_it_shows_what_is_asked_for_as_others_do(tmp_path: Path) -> None:
    arguments = ["ls", "a" * 4000, "echo " + "a" * 5000 + "; rm -rf /"]
    (tmp_path / "x.mjs").write_text(extension.source(parse(["ask *"])))
    script = f"import {{ shown }} from './x.mjs'; console.log(JSON.stringify({json.dumps(arguments)}.map(shown)))"
    (tmp_path / "main.mjs").write_text(script)
    assert NODE is not None
    done = subprocess.run([NODE, "main.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True)
    assert json.loads(done.stdout) == [shown(one) for one in arguments]


def test_it_is_left_out_where_nothing_is_asked() -> None:
    assert not extension.needed(parse(["allow *"]))
    for action in ("ask", "deny"):
        assert extension.needed(parse(["allow bash", f"{action} edit"]))


def test_rules_are_data_and_not_code() -> None:
    nasty = "`${process.exit()}`\"'\\ */ %s"
    source = extension.source(parse([f"deny bash:{nasty}"]))
    line = next(line for line in source.splitlines() if line.startswith("const RULES"))
    assert json.loads(line.removeprefix("const RULES = ").removesuffix(";")) == [["deny", "bash", nasty]]
