"""The calls as OpenAPI names them: an id that people can read, and an example that they can run.

An id is for ever: clients that are made from the document call their functions so.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

ORIGIN = "http://127.0.0.1:8080"


class Call(NamedTuple):
    id: str
    body: object = None
    """An example of its JSON body."""


CALLS: Final[Mapping[str, Call]] = {
    "POST /v1/sessions": Call("create_session", {"limits": {"memory_mb": 256}, "network": {"allow": ["pypi.org"]}}),
    "GET /v1/sessions": Call("list_sessions"),
    "GET /v1/sessions/{session_id}": Call("get_session"),
    "DELETE /v1/sessions/{session_id}": Call("destroy_session"),
    "GET /v1/sessions/{session_id}/stats": Call("get_session_stats"),
    "POST /v1/sessions/{session_id}/pause": Call("pause_session"),
    "POST /v1/sessions/{session_id}/hibernate": Call("hibernate_session", {"as": "files"}),
    "POST /v1/sessions/{session_id}/resume": Call("resume_session"),
    "POST /v1/sessions/{session_id}/restore": Call("restore_session", {"as": "files"}),
    "POST /v1/sessions/{session_id}/fork": Call("fork_session", {"metadata": {"try": "2"}}),
    "POST /v1/sessions/{session_id}/snapshots": Call("create_snapshot", {"name": "before-upgrade"}),
    "POST /v1/sessions/{session_id}/exec": Call("run_command", {"cmd": "cd /tmp && echo hello", "timeout_ms": 10000}),
    "GET /v1/sessions/{session_id}/exec/{exec_id}": Call("get_command_result"),
    "POST /v1/sessions/{session_id}/exec/stream": Call("run_command_streamed", {"cmd": "make test"}),
    "GET /v1/sessions/{session_id}/exec/{exec_id}/stream": Call("follow_command"),
    "POST /v1/sessions/{session_id}/exec/{exec_id}/cancel": Call("cancel_command"),
    "GET /v1/sessions/{session_id}/processes": Call("list_processes"),
    "POST /v1/sessions/{session_id}/processes": Call("start_process", {"argv": ["python3", "-m", "http.server"]}),
    "GET /v1/sessions/{session_id}/processes/{process_id}": Call("get_process"),
    "DELETE /v1/sessions/{session_id}/processes/{process_id}": Call("remove_process"),
    "GET /v1/sessions/{session_id}/processes/{process_id}/output": Call("read_process_output"),
    "GET /v1/sessions/{session_id}/processes/{process_id}/stream": Call("follow_process"),
    "POST /v1/sessions/{session_id}/processes/{process_id}/stdin": Call("write_process_stdin", {"text": "yes\n"}),
    "POST /v1/sessions/{session_id}/processes/{process_id}/signal": Call("signal_process", {"signal": "TERM"}),
    "POST /v1/sessions/{session_id}/processes/{process_id}/resize": Call(
        "resize_process", {"rows": 40, "columns": 120}
    ),
    "GET /v1/sessions/{session_id}/ports": Call("list_ports"),
    "POST /v1/sessions/{session_id}/fs/write": Call("write_file", {"path": "/workspace/a.txt", "content": "hello\n"}),
    "GET /v1/sessions/{session_id}/fs/read": Call("read_file"),
    "PUT /v1/sessions/{session_id}/fs/file": Call("upload_file"),
    "GET /v1/sessions/{session_id}/fs/file": Call("download_file"),
    "PUT /v1/sessions/{session_id}/fs/archive": Call("unpack_archive"),
    "GET /v1/sessions/{session_id}/fs/archive": Call("download_archive"),
    "POST /v1/sessions/{session_id}/fs/link": Call("create_file_link", {"path": "/workspace/a.txt"}),
    "GET /v1/files/{token}": Call("download_by_link"),
    "PUT /v1/files/{token}": Call("upload_by_link"),
    "GET /v1/sessions/{session_id}/fs/stat": Call("stat_path"),
    "GET /v1/sessions/{session_id}/fs/list": Call("list_folder"),
    "GET /v1/sessions/{session_id}/fs/find": Call("find_files"),
    "GET /v1/sessions/{session_id}/fs/watch": Call("watch_folder"),
    "POST /v1/sessions/{session_id}/fs/mkdir": Call("make_folder", {"path": "/workspace/new", "parents": True}),
    "POST /v1/sessions/{session_id}/fs/move": Call("move_path", {"source": "/workspace/a", "target": "/workspace/b"}),
    "POST /v1/sessions/{session_id}/fs/copy": Call("copy_path", {"source": "/workspace/a", "target": "/workspace/b"}),
    "POST /v1/sessions/{session_id}/fs/remove": Call("remove_path", {"path": "/workspace/old", "recursive": True}),
    "POST /v1/sessions/{session_id}/fs/chmod": Call("change_mode", {"path": "/workspace/run.sh", "mode": "0755"}),
    "GET /v1/snapshots": Call("list_snapshots"),
    "GET /v1/snapshots/{reference}": Call("get_snapshot"),
    "DELETE /v1/snapshots/{reference}": Call("delete_snapshot"),
    "GET /v1/workspaces": Call("list_workspaces"),
    "DELETE /v1/workspaces/{reference}": Call("delete_workspace"),
    "GET /v1/strays": Call("list_strays"),
    "POST /v1/strays/{stray_id}/adopt": Call("adopt_stray"),
    "DELETE /v1/strays/{stray_id}": Call("remove_stray"),
    "GET /v1/usage": Call("get_usage"),
    "GET /v1/threads": Call("list_threads"),
    "GET /v1/threads/{key}": Call("get_thread"),
    "DELETE /v1/threads/{key}": Call("delete_thread"),
    "POST /v1/threads/{key}/resolve": Call("resolve_thread", {"options": {"agent": "pi"}}),
    "GET /v1/threads/{key}/messages": Call("list_messages"),
    "POST /v1/threads/{key}/messages": Call("send_message", {"id": "m1", "text": "What is in this folder?"}),
    "GET /v1/threads/{key}/messages/{message_id}": Call("get_message"),
    "DELETE /v1/threads/{key}/messages/{message_id}": Call("cancel_message"),
    "GET /v1/threads/{key}/turns/{turn_id}": Call("get_turn"),
    "GET /v1/threads/{key}/transcript": Call("get_transcript"),
    "GET /v1/threads/{key}/events": Call("list_thread_events"),
    "GET /v1/threads/{key}/events/stream": Call("follow_thread_events"),
    "POST /v1/threads/{key}/abort": Call("abort_turn", {"queued": True}),
    "POST /v1/threads/{key}/questions/{question_id}/answer": Call("answer_question", {"answer": "yes"}),
    "POST /v1/threads/{key}/revert": Call("revert_turn", {}),
    "POST /v1/threads/{key}/pause": Call("pause_thread", {"hibernate": True}),
    "GET /v1/threads/{key}/diff": Call("get_diff"),
    "GET /v1/threads/{key}/commands": Call("list_agent_commands"),
    "POST /v1/threads/{key}/commands": Call("run_agent_command", {"id": "m2", "name": "/compact"}),
    "POST /v1/threads/{key}/review": Call("review_changes", {"id": "m3", "text": "Look at error handling"}),
    "POST /v1/threads/{key}/new-session": Call("forget_conversation", {"channel": "default"}),
    "GET /v1/threads/{key}/models": Call("list_thread_models"),
    "PUT /v1/threads/{key}/model": Call("choose_model", {"model": "demo/demo-1"}),
    "GET /v1/models": Call("list_models"),
    "GET /v1/threads/{key}/files": Call("list_thread_files"),
    "POST /v1/threads/{key}/files": Call("upload_thread_file"),
    "GET /v1/threads/{key}/artifacts/{file_id}": Call("download_artifact"),
    "GET /v1/images": Call("list_images"),
    "POST /v1/images": Call("import_image", {"name": "tools", "source": "/srv/tools.tar"}),
    "DELETE /v1/images/{name}": Call("remove_image"),
    "GET /v1/events": Call("follow_events"),
    "GET /v1/keys": Call("list_keys"),
    "POST /v1/keys": Call("add_key", {"name": "ada", "scope": "use"}),
    "DELETE /v1/keys/{name}": Call("remove_key"),
    "GET /healthz": Call("get_health"),
    "GET /metrics": Call("get_metrics"),
}

_VALUES: Final[Mapping[str, str]] = {
    "session_id": "ses_1a2b3c4d",
    "exec_id": "exe_1a2b3c4d",
    "process_id": "prc_1a2b3c4d",
    "turn_id": "trn_1a2b3c4d",
    "file_id": "fil_1a2b3c4d",
    "stray_id": "ses_1a2b3c4d",
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
    """Name each call of an OpenAPI document, and give it an example."""
    for path, operations in schema["paths"].items():
        for verb, operation in operations.items():
            call = CALLS.get(f"{verb.upper()} {path}")
            if call is None:
                continue
            operation["operationId"] = call.id
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content and call.body is not None:
                content["application/json"]["example"] = call.body
            source = _curl(verb.upper(), path, operation, call)
            operation["x-codeSamples"] = [{"lang": "Shell", "label": "curl", "source": source}]


def _curl(verb: str, path: str, operation: Mapping[str, Any], call: Call) -> str:
    """A command that can be pasted where ``$HOLDFAST_API_KEY`` is set."""
    needed = [one["name"] for one in operation.get("parameters", ()) if one.get("required") and one["in"] == "query"]
    query = "&".join(f"{name}={_VALUES[name]}" for name in needed)
    target = f"{ORIGIN}{path.format_map(_VALUES)}{'?' if query else ''}{query}"
    streams = any("text/event-stream" in reply.get("content", {}) for reply in operation["responses"].values())
    words = ["curl"] + (["-N"] if streams else []) + ([f"-X {verb}"] if verb not in ("GET", "POST") else [])
    lines = [" ".join([*words, f"'{target}'" if query else target])]
    if operation.get("security"):
        lines.append('-H "Authorization: Bearer $HOLDFAST_API_KEY"')
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" in content and call.body is not None:
        lines += ["-H 'Content-Type: application/json'", f"-d '{json.dumps(call.body)}'"]
    elif content:
        lines.append("--data-binary @file")
    elif verb == "POST":
        lines[0] = lines[0].replace("curl", "curl -X POST", 1)
    return " \\\n  ".join(lines)
