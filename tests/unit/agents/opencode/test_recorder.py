"""The plugin in OpenCode's server, in Node: what it writes down of the events that it is told."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from holdfast.agents.opencode import settings
from holdfast.agents.supervisor import AGENT_BIN

NODE = Path(AGENT_BIN, "node")
pytestmark = pytest.mark.skipif(not NODE.exists(), reason="Node is not installed")

RECORDER = Path(settings.__file__).parent / "recorder.js"
NAME, OTHER = "a" * 40, "b" * 40
KEY = f"ses_1/{NAME}"

JsonObject = Mapping[str, object]


def play(home: Path, script: str) -> list[JsonObject]:
    """What it tells on stdout while this JavaScript runs; the recorder's hooks are ``hooks``."""
    code = f"""
        import {{ Holdfast }} from {json.dumps(RECORDER.as_uri())}
        const hooks = await Holdfast()
        const say = (type, properties) =>
            hooks.event({{ event: {{ type, properties: {{ sessionID: "ses_1", ...properties }} }} }})
        const prompt = (name) => hooks["chat.message"]({{ sessionID: "ses_1" }},
            {{ message: {{ id: "msg_1" }}, parts: [{{ type: "text", text: "hi", metadata: {{ holdfast: name }} }}] }})
        const message = (info) => say("message.updated", {{ info: {{ id: "msg_2", role: "assistant", ...info }} }})
        const part = (part) => say("message.part.updated", {{ part: {{ messageID: "msg_2", ...part }} }})
        {script}
        process.exit(0)
    """
    done = subprocess.run(
        [str(NODE), "--input-type=module", "-e", code],
        env={**os.environ, "HOLDFAST_OPENCODE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def log(home: Path, key: str = KEY) -> Sequence[JsonObject]:
    return [json.loads(line) for line in (home / "turns" / f"{key}.jsonl").read_text().splitlines()]


def kinds(home: Path, key: str = KEY) -> list[object]:
    return [record["type"] for record in log(home, key)]


def test_what_it_tells_is_what_it_writes_at_the_place_that_it_names(tmp_path: Path) -> None:
    notes = play(
        tmp_path,
        f"""
        await prompt("{NAME}")
        await message({{}})
        await part({{ id: "prt_1", type: "text", text: "" }})
        await say("message.part.delta", {{ messageID: "msg_2", partID: "prt_1", field: "text", delta: "grüß " }})
        await part({{ id: "prt_1", type: "text", text: "grüß dich", time: {{ end: 1 }} }})
        await message({{ finish: "stop", time: {{ completed: 1 }} }})
        await say("session.idle", {{}})
        """,
    )
    assert kinds(tmp_path) == ["prompt", "delta", "delta", "ended", "settled"]
    assert [record.get("text") for record in log(tmp_path)][1:3] == ["grüß ", "dich"]
    content = (tmp_path / "turns" / f"{KEY}.jsonl").read_bytes()
    told = [note for note in notes if note.get("turn") == KEY]
    for note in told:
        start, end = note["start"], note["end"]
        assert isinstance(start, int) and isinstance(end, int)
        assert json.loads(content[start:end]) == note["record"]
    assert len(told) == 5


def test_a_turn_that_fails_is_idle_twice_and_over_after_the_second(tmp_path: Path) -> None:
    play(
        tmp_path,
        f"""
        await prompt("{NAME}")
        await message({{}})
        const error = {{ name: "APIError", data: {{ message: "no", statusCode: 401 }} }}
        await say("session.error", {{ error }})
        await say("session.idle", {{}})
        let waited = true
        const next = prompt("{OTHER}").then(() => (waited = false))
        await new Promise((resolve) => setTimeout(resolve, 50))
        if (!waited) throw new Error("it did not wait")
        await message({{ error, time: {{}} }})
        await say("session.idle", {{}})
        await next
        """,
    )
    assert kinds(tmp_path) == ["prompt", "error", "ended", "settled"]
    assert kinds(tmp_path, f"ses_1/{OTHER}") == ["prompt"]


def test_a_prompt_is_taken_once(tmp_path: Path) -> None:
    again = f"""
        let refused = 0
        for (let count = 0; count < 3; count++) await prompt("{NAME}").catch(() => refused++)
        console.log(JSON.stringify({{ refused }}))
    """
    assert {"refused": 2} in play(tmp_path, again)
    assert {"refused": 3} in play(tmp_path, again), "nor after a restart"
    assert kinds(tmp_path) == ["prompt", "settled"]


def test_a_turn_that_a_server_left_behind_is_over(tmp_path: Path) -> None:
    play(tmp_path, f'await prompt("{NAME}")')
    with (tmp_path / "turns" / f"{KEY}.jsonl").open("a") as file:
        file.write('{"type": "del')  # a line that it could not finish
    play(tmp_path, "")
    *_, last = (tmp_path / "turns" / f"{KEY}.jsonl").read_text().splitlines()
    assert json.loads(last) == {"type": "settled", "aborted": False, "died": True}
    before = (tmp_path / "turns" / f"{KEY}.jsonl").read_bytes()
    play(tmp_path, "")
    assert (tmp_path / "turns" / f"{KEY}.jsonl").read_bytes() == before


def test_old_turns_are_shortened(tmp_path: Path) -> None:
    folder = tmp_path / "turns" / "ses_1"
    folder.mkdir(parents=True)
    lines = ['{"type":"prompt","message":"msg_0"}', f'{{"type":"delta","text":"{"x" * 5000}"}}', '{"type":"settled"}']
    for number in range(100):
        file = folder / f"{number:040x}.jsonl"
        file.write_text("\n".join(lines) + "\n")
        os.utime(file, (1000 + number, 1000 + number))
    play(tmp_path, f'await prompt("{NAME}")')
    assert kinds(tmp_path, f"ses_1/{0:040x}") == ["prompt", "settled"]
    assert kinds(tmp_path, f"ses_1/{1:040x}") == ["prompt", "delta", "settled"]
    assert kinds(tmp_path) == ["prompt"]


def test_an_abort_before_there_was_an_answer(tmp_path: Path) -> None:
    play(
        tmp_path,
        f"""
        await prompt("{NAME}")
        const fs = await import("node:fs")
        fs.writeFileSync("{tmp_path}/turns/{KEY}.jsonl.abort", "")
        await say("session.idle", {{}})
        """,
    )
    assert log(tmp_path)[-1] == {"type": "settled", "aborted": True}


def test_a_sub_agent_asks_in_the_turn_that_started_it(tmp_path: Path) -> None:
    play(
        tmp_path,
        f"""
        await prompt("{NAME}")
        await say("session.created", {{ sessionID: "ses_2", info: {{ id: "ses_2", parentID: "ses_1" }} }})
        await say("permission.asked", {{ sessionID: "ses_2", id: "per_1", permission: "bash", patterns: ["ls"] }})
        await say("message.part.delta", {{ sessionID: "ses_2", partID: "prt_9", field: "text", delta: "mine" }})
        await say("session.idle", {{ sessionID: "ses_2" }})
        """,
    )
    assert kinds(tmp_path) == ["prompt", "asked"]
    assert (tmp_path / "turns" / "ses_1" / "per_1.asked").exists()


def test_what_was_allowed_for_good_is_told_with_each_later_prompt(tmp_path: Path) -> None:
    wish = ["ask bash", "bash"]
    play(
        tmp_path,
        f"""
        const fs = await import("node:fs")
        await prompt("{NAME}")
        for (const [id, reply] of [["per_1", "once"], ["per_2", "reject"], ["per_3", "once"]]) {{
            await say("permission.asked", {{ id, permission: "bash", patterns: ["ls"] }})
            if (id !== "per_3") fs.writeFileSync(`{tmp_path}/turns/ses_1/${{id}}.always`, '{json.dumps([wish])}')
            await say("permission.replied", {{ requestID: id, reply }})
        }}
        await message({{ finish: "stop", time: {{ completed: 1 }} }})
        await say("session.idle", {{}})
        await prompt("{OTHER}")
        """,
    )
    replies = [record.get("always") for record in log(tmp_path) if record["type"] == "replied"]
    assert replies == [[wish], None, None]
    assert "always" not in log(tmp_path)[0]
    assert log(tmp_path, f"ses_1/{OTHER}")[0]["always"] == [wish]
    asked = json.loads((tmp_path / "turns" / "ses_1" / "per_1.asked").read_text())
    assert (asked["permission"], asked["patterns"]) == ("bash", ["ls"])


def test_commands_that_it_runs_do_not_see_its_own_surroundings(tmp_path: Path) -> None:
    notes = play(
        tmp_path,
        """
        const output = { env: {} }
        await hooks["shell.env"]({}, output)
        console.log(JSON.stringify(output))
        """,
    )
    env = notes[-1]["env"]
    assert isinstance(env, dict)
    assert env["OPENCODE_SERVER_PASSWORD"] == ""
    assert env["XDG_CONFIG_HOME"].endswith("/.config")
