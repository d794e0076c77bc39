"""Examples for the OpenAPI document: bodies of requests, and command lines."""

import json
from collections.abc import Mapping
from typing import Any, Final

ORIGIN = "http://127.0.0.1:8080"


BODIES: Final[Mapping[str, object]] = {
    "create_session": {"limits": {"memory_mb": 256}, "network": {"allow": ["pypi.org"]}},
    "hibernate_session": {"as": "files"},
    "restore_session": {"as": "files"},
    "fork_session": {"metadata": {"try": "2"}},
    "create_snapshot": {"name": "before-upgrade"},
    "run_command": {"cmd": "cd /tmp && echo hello", "timeout_ms": 10000},
    "run_command_streamed": {"cmd": "make test"},
    "start_process": {"argv": ["python3", "-m", "http.server"]},
    "write_process_stdin": {"text": "yes\n"},
    "signal_process": {"signal": "TERM"},
    "resize_process": {"rows": 40, "columns": 120},
    "write_file": {"path": "/workspace/a.txt", "content": "hello\n"},
    "create_file_link": {"path": "/workspace/a.txt"},
    "make_folder": {"path": "/workspace/new", "parents": True},
    "move_path": {"source": "/workspace/a", "target": "/workspace/b"},
    "copy_path": {"source": "/workspace/a", "target": "/workspace/b"},
    "remove_path": {"path": "/workspace/old", "recursive": True},
    "change_mode": {"path": "/workspace/run.sh", "mode": "0755"},
    "resolve_thread": {"options": {"agent": "pi"}},
    "send_message": {"id": "m1", "text": "What is in this folder?"},
    "abort_turn": {"queued": True},
    "answer_question": {"answer": "yes"},
    "revert_turn": {},
    "pause_thread": {"hibernate": True},
    "run_agent_command": {"id": "m2", "name": "/compact"},
    "review_changes": {"id": "m3", "text": "Look at error handling"},
    "forget_conversation": {"channel": "default"},
    "choose_model": {"model": "demo/demo-1"},
    "create_port_link": {"ttl_seconds": 600},
    "create_tunnel_link": {"name": "for-ada"},
    "put_tunnel": {"name": "web", "port": 3000},
    "import_image": {"name": "tools", "source": "/srv/tools.tar"},
    "add_key": {"name": "ada", "scope": "use"},
}
"""An example of the JSON body of each operation that has one."""

_VALUES: Final[Mapping[str, str]] = {
    "session_id": "ses_1a2b3c4d",
    "exec_id": "exe_1a2b3c4d",
    "process_id": "prc_1a2b3c4d",
    "turn_id": "trn_1a2b3c4d",
    "file_id": "fil_1a2b3c4d",
    "stray_id": "ses_1a2b3c4d",
    "link_id": "lnk_1a2b3c4d",
    "port": "3000",
    "tunnel": "web",
    "service": "ide",
    "message_id": "m1",
    "question_id": "q1",
    "key": "slack:T1:C1:1700000000.1",
    "token": "eyJ...",
    "reference": "before-upgrade",
    "name": "ada",
    "path": "/workspace",
    "pattern": "**/*.py",
}
"""Of parameters that a call must have."""


def add_examples(schema: dict[str, Any]) -> None:
    """Give each operation of an OpenAPI document an example of its body, and a command line that can be pasted."""
    for path, operations in schema["paths"].items():
        for verb, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                content["application/json"]["example"] = BODIES[operation["operationId"]]
            source = _curl(verb.upper(), path, operation)
            operation["x-codeSamples"] = [{"lang": "Shell", "label": "curl", "source": source}]


def _curl(verb: str, path: str, operation: Mapping[str, Any]) -> str:
    """Return a command that can be pasted where ``$HOLDFAST_API_KEY`` is set."""
    needed = [one["name"] for one in operation.get("parameters", ()) if one.get("required") and one["in"] == "query"]
    query = "&".join(f"{name}={_VALUES[name]}" for name in needed)
    target = f"{ORIGIN}{path.format_map(_VALUES)}{'?' if query else ''}{query}"
    streams = any("text/event-stream" in reply.get("content", {}) for reply in operation["responses"].values())
    words = ["curl"] + (["-N"] if streams else []) + ([f"-X {verb}"] if verb not in ("GET", "POST") else [])
    lines = [" ".join([*words, f"'{target}'" if query else target])]
    if operation.get("security"):
        lines.append('-H "Authorization: Bearer $HOLDFAST_API_KEY"')
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" in content:
        lines += ["-H 'Content-Type: application/json'", f"-d '{json.dumps(content['application/json']['example'])}'"]
    elif content:
        lines.append("--data-binary @file")
    elif verb == "POST":
        lines[0] = lines[0].replace("curl", "curl -X POST", 1)
    return " \\\n  ".join(lines)
