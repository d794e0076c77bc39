"""exec, write_file and read_file as the tools of an agent, in the shape of the OpenAI Agents SDK.

Run it against a daemon on this machine (``holdfast up`` in another terminal)::

    python examples/agent_tools.py

It needs no account and no network: a scripted model, served by this file over HTTP, speaks the chat completions
protocol and asks for tools as a real one would. To use a real model instead::

    OPENAI_BASE_URL=https://… OPENAI_API_KEY=… MODEL=… python examples/agent_tools.py "your task"

What to look at: ``sandbox_tools`` makes three tools from one session; ``function_tool`` derives their JSON schema
from the signature; ``run`` is the loop that every agent framework has. The sandbox stays the same from call to call,
so the model can ``cd``, install and come back.
"""

import asyncio
import inspect
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2

from holdfast.errors import HoldfastError
from holdfast.sdk import Client, Session

INSTRUCTIONS = "You work in a Linux sandbox. Use the tools; the shell remembers its directory and variables."
TASK = "Write a Python program that prints the first ten primes, run it, and tell me what it printed."
MAX_TURNS = 20

JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


@dataclass(frozen=True)
class FunctionTool:
    """A function that a model may call: what it is told of it, and what happens then."""

    name: str
    description: str
    params_json_schema: dict[str, Any]
    on_invoke_tool: Callable[[str], Awaitable[str]]

    def as_chat_tool(self) -> dict[str, Any]:
        function = {"name": self.name, "description": self.description, "parameters": self.params_json_schema}
        return {"type": "function", "function": function}


def function_tool(function: Callable[..., Awaitable[str]]) -> FunctionTool:
    """Makes a tool of an async function: its name, its docstring and its annotated parameters."""
    parameters = inspect.signature(function).parameters.values()
    schema = {
        "type": "object",
        "properties": {one.name: {"type": JSON_TYPES[one.annotation]} for one in parameters},
        "required": [one.name for one in parameters if one.default is inspect.Parameter.empty],
        "additionalProperties": False,
    }

    async def invoke(arguments: str) -> str:
        try:
            return await function(**json.loads(arguments))
        except (HoldfastError, TypeError, ValueError) as exc:  # the model can read this and try something else
            return f"error: {exc}"

    return FunctionTool(function.__name__, inspect.getdoc(function) or "", schema, invoke)


def sandbox_tools(session: Session) -> list[FunctionTool]:
    """The tools of one sandbox."""

    @function_tool
    async def exec(command: str, timeout_seconds: int = 60) -> str:
        """Run a shell command. Directory, variables and functions stay for the next one."""
        result = await session.exec(command, timeout_ms=timeout_seconds * 1000)
        ending = "timed out" if result.timed_out else f"exit code {result.exit_code}"
        return f"{result.output}[{ending}, in {result.cwd}]"

    @function_tool
    async def write_file(path: str, content: str) -> str:
        """Write a text file; path is absolute."""
        await session.write(path, content)
        return f"wrote {len(content.encode())} bytes to {path}"

    @function_tool
    async def read_file(path: str) -> str:
        """Read a text file; path is absolute."""
        return (await session.read(path, max_bytes=100_000)).decode(errors="replace")

    return [exec, write_file, read_file]


@dataclass(frozen=True)
class Agent:
    instructions: str
    model: str
    tools: Sequence[FunctionTool]


async def run(agent: Agent, task: str, base_url: str, api_key: str) -> str:
    """Asks the model, does what it asks for, tells it what came of that, until it answers in words."""
    tools = {tool.name: tool for tool in agent.tools}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": agent.instructions},
        {"role": "user", "content": task},
    ]
    say("user", task)
    here = base_url.startswith("http://127.0.0.1:")  # then past any proxy
    headers = {"Authorization": f"Bearer {api_key}"}
    async with httpx2.AsyncClient(timeout=120, headers=headers, trust_env=not here) as http:
        for _ in range(MAX_TURNS):
            body = {
                "model": agent.model,
                "messages": messages,
                "tools": [tool.as_chat_tool() for tool in agent.tools],
            }
            answer = (await http.post(f"{base_url}/chat/completions", json=body)).raise_for_status().json()
            message = answer["choices"][0]["message"]
            messages.append(message)
            if message.get("content"):
                say("assistant", message["content"])
            if not message.get("tool_calls"):
                return str(message["content"])
            for call in message["tool_calls"]:
                name, arguments = call["function"]["name"], call["function"]["arguments"]
                say("call", f"{name}({arguments})")
                tool = tools.get(name)
                output = await tool.on_invoke_tool(arguments) if tool else f"error: there is no tool {name}"
                say(name, output)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
    raise RuntimeError(f"no answer after {MAX_TURNS} turns")


def say(who: str, what: str) -> None:
    print(f"{who:>10} │ " + what.rstrip("\n").replace("\n", "\n" + " " * 11 + "│ "))


PROGRAM = "primes = [n for n in range(2, 30) if all(n % d for d in range(2, n))]\nprint(*primes)\n"
SCRIPT: Sequence[tuple[str, dict[str, Any]]] = (
    ("exec", {"command": "mkdir -p /tmp/primes && cd /tmp/primes && pwd"}),
    ("write_file", {"path": "/tmp/primes/primes.py", "content": PROGRAM}),
    ("exec", {"command": "python3 primes.py | tee out.txt", "timeout_seconds": 20}),
    ("read_file", {"path": "/tmp/primes/out.txt"}),
)


class ScriptedModel(BaseHTTPRequestHandler):
    """A model without intelligence: it calls the tools of SCRIPT in order, then reports the last tool's output."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        outputs = [message["content"] for message in request["messages"] if message["role"] == "tool"]
        message: dict[str, Any] = {"role": "assistant", "content": None}
        if len(outputs) < len(SCRIPT):
            name, arguments = SCRIPT[len(outputs)]
            function = {"name": name, "arguments": json.dumps(arguments)}
            message["tool_calls"] = [{"id": f"call_{len(outputs)}", "type": "function", "function": function}]
        else:
            message["content"] = f"The program printed: {outputs[-1].strip()}"
        body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: the conversation is what is printed."""


@contextmanager
def scripted_model() -> Iterator[str]:
    """Serves the scripted model on a free port and gives its base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), ScriptedModel)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def work(task: str, base_url: str, api_key: str, model: str) -> str:
    async with Client() as client, client.create_session(metadata={"example": "agent_tools"}) as session:
        return await run(Agent(INSTRUCTIONS, model, sandbox_tools(session)), task, base_url, api_key)


def main() -> None:
    task = " ".join(sys.argv[1:]) or TASK
    try:
        if real := os.environ.get("OPENAI_BASE_URL"):
            asyncio.run(work(task, real, os.environ.get("OPENAI_API_KEY", ""), os.environ.get("MODEL", "gpt-4.1")))
        else:
            with scripted_model() as base_url:
                asyncio.run(work(task, base_url, "none", "scripted"))
    except HoldfastError as exc:
        sys.exit(f"agent_tools: {exc}")


if __name__ == "__main__":
    main()
