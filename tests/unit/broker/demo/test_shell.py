"""Commands for the agent's shell tool, run by a real shell, and how differently the tools want to be called."""

import random
import subprocess
from pathlib import Path

import pytest

from holdfast.broker.demo import agent_tools
from holdfast.broker.dialects.json import Json
from holdfast.broker.dialects.question import Tool


def schema(*required: str, **properties: str) -> Json:
    return {"properties": {name: {"type": kind} for name, kind in properties.items()}, "required": list(required)}


@pytest.mark.parametrize("name", ["bash", "Bash", "exec_command", "run_shell_command", "local_shell", "shell"])
def test_the_shell_tool_is_found_by_its_name(name: str) -> None:
    tools = [Tool("read"), Tool("write_stdin"), Tool(name), Tool("task")]
    assert agent_tools.find_shell(tools) is tools[2]


def test_no_shell_tool() -> None:
    assert agent_tools.find_shell([Tool("read"), Tool("bash_output")]) is None


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (Tool("bash", schema=schema("command", command="string", timeout="number")), {"command": "ls"}),
        (Tool("shell", schema=schema("command", command="array")), {"command": ["bash", "-c", "ls"]}),
        (
            Tool("exec_command", schema=schema("cmd", cmd="string", yield_time_ms="number")),
            {"cmd": "ls", "yield_time_ms": 30000},
        ),
        (Tool("local_shell", kind="local_shell"), {"command": ["bash", "-c", "ls"]}),
        (
            Tool("bash", schema=schema("command", "description", command="string", description="string")),
            {"command": "ls", "description": "the script's next line"},
        ),
    ],
)
def test_arguments_are_as_the_schema_wants_them(tool: Tool, arguments: Json) -> None:
    assert agent_tools.call(tool, "ls").arguments == arguments


def test_a_command_that_still_runs_is_waited_for() -> None:
    tools = [Tool("exec_command"), Tool("write_stdin")]
    more = agent_tools.wait_on(tools, "Wall time: 30.0\nProcess running with session ID 4711\nOutput:\n")
    assert more is not None
    assert more.arguments["session_id"] == 4711
    assert agent_tools.wait_on(tools, "Process exited with code 0\nOutput:\nsession ID 4711") is None
    assert agent_tools.wait_on(tools[:1], "Process running with session ID 4711") is None


TEXTS = {
    "quotes": """it's "quoted" $HOME `date` \\ %s\nand more""",
    "empty": "",
    "repeated": "word " * 60_000,
    "noise": random.Random(7).randbytes(150_000).hex(),
    "letters": "äöü€" * 2000,
}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_file_has_exactly_the_text(name: str, tmp_path: Path) -> None:
    path = tmp_path / "it's here.txt"
    path.write_text("what was there before")
    commands = agent_tools.write(str(path), TEXTS[name])
    for command in commands:
        assert len(command) < 128 << 10
        subprocess.run(["bash", "-c", command], check=True, timeout=30)
    assert path.read_text() == TEXTS[name]
    assert (len(commands) > 1) == (name == "noise")
    assert list(tmp_path.iterdir()) == [path]


def test_waiting_ends_when_the_file_is_there(tmp_path: Path) -> None:
    path = tmp_path / "go"
    waiting = subprocess.Popen(["bash", "-c", agent_tools.wait_for(str(path))])
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.2)
        path.touch()
        assert waiting.wait(30) == 0
    finally:
        waiting.kill()
        waiting.wait(30)
