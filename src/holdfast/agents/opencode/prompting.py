"""Gives OpenCode a prompt, and finds out that it was accepted."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

from holdfast.agents.attachments import attachment_text, images
from holdfast.agents.base import ConversationId, Place, Prompt, SlashCommand
from holdfast.agents.http import hold_post
from holdfast.agents.opencode.server import Servers, check
from holdfast.agents.opencode.settings import model_fields, model_of, name_of
from holdfast.agents.supervisor import AgentProcess, OutputLine, follow_lines
from holdfast.agents.supervisor.output import OutputItem
from holdfast.concurrency import cancel_and_wait
from holdfast.errors import AgentDown, AgentFailed
from holdfast.sessions.use.follow import Attached
from holdfast.sessions.use.processes import ProcessView

_COMMAND = re.compile(r"/([A-Za-z0-9][\w:./-]*)(?:\s+(.*))?", re.DOTALL)
_TIME = re.compile(r"(?:msg|ses)_([0-9a-f]{12})")
_TIME_MASK = (1 << 48) - 1
_TAKEN = "accepted before"


@dataclass(frozen=True, slots=True)
class PromptRequest:
    path: str
    content: Mapping[str, object]

    def contains(self, offer: str) -> bool:
        """Say whether this request contains the offer of models. A command has no field for it, so the next prompt has
        it."""
        return bool(offer) and "parts" in self.content


async def request(
    servers: Servers,
    place: Place,
    found: AgentProcess,
    conversation: ConversationId,
    prompt: Prompt,
    name: str,
    offer: str = "",
) -> PromptRequest:
    """Make the request for this prompt. The recorder knows it by ``name``, and records ``offer``, the models, with
    it."""
    typed = _COMMAND.fullmatch(prompt.text.strip())
    if typed and typed[1] in {command.name for command in await commands(servers, place, found)}:
        content = {
            "command": typed[1],
            "arguments": (typed[2] or "") + attachment_text(prompt),
            "model": name_of(model_of(place.brief, prompt.model)),
            "messageID": await _message_id(servers, place, found, conversation, name),
        }
        return PromptRequest(f"/session/{conversation}/command", content)
    metadata = {"holdfast": name, **({"models": offer} if offer else {})}
    parts: list[dict[str, object]] = [{"type": "text", "text": prompt.text, "metadata": metadata}]
    if paths := attachment_text(prompt):
        parts.append({"type": "text", "text": paths.strip()})
    for image in await images(place, prompt, model_of(place.brief, prompt.model)):
        url = f"data:{image.mime};base64,{image.data}"
        parts.append({"type": "file", "mime": image.mime, "filename": image.name, "url": url})
    return PromptRequest(
        f"/session/{conversation}/prompt_async", {"model": model_fields(place.brief, prompt.model), "parts": parts}
    )


async def _message_id(servers: Servers, place: Place, found: AgentProcess, conversation: str, name: str) -> str:
    """Make an id that contains the name and sorts right after the last message, because OpenCode sorts by ids.

    Our clock may differ from the sandbox's, so the time comes from the last message or, in an empty session, from the
    session's id, where it is stored inverted.
    """
    listed = (await servers.ask(place, found, "GET", f"/session/{conversation}/message?limit=1")).content
    last = listed[-1] if isinstance(listed, list) and listed else None
    info = last.get("info") if isinstance(last, dict) else None
    told = _TIME.match(str(info.get("id"))) if isinstance(info, dict) else None
    born = _TIME.match(conversation)
    if told is None and born is None:
        raise AgentFailed(f"the agent's session {conversation} tells no time; make a new one")
    time = int(told[1], 16) if told else ~int(born[1] if born else "0", 16)
    return f"msg_{(time + 1) & _TIME_MASK:012x}hf{name}"


async def commands(servers: Servers, place: Place, found: AgentProcess) -> Sequence[SlashCommand]:
    listed = (await servers.ask(place, found, "GET", "/command")).content
    if not isinstance(listed, list):
        raise AgentFailed("the agent's list of commands is none")
    return [
        SlashCommand(one["name"], str(one.get("description") or ""))
        for one in listed
        if isinstance(one, dict) and isinstance(one.get("name"), str)
    ]


async def deliver(
    servers: Servers, place: Place, found: AgentProcess, key: str, wanted: PromptRequest, quiet: float
) -> None:
    """Send the request, and return when the recorder has noted it. The caller has to set a deadline."""
    server = await servers.server(place, found)
    output = follow_lines(place, found.view.process_id, found.view.written, quiet)
    try:
        if not isinstance(await anext(output, None), Attached):
            raise AgentDown("the agent's process has ended; the next message starts it again")
        async with hold_post(
            place, server, wanted.path, wanted.content, lambda reply: check(reply, wanted.path)
        ) as answer:
            await _wait_until_taken(output, answer, key)
    finally:
        await output.aclose()


async def _wait_until_taken(output: AsyncGenerator[OutputItem, None], answer: "asyncio.Future[None]", key: str) -> None:
    noted = asyncio.ensure_future(_wait_for_note(output, key))
    try:
        await asyncio.wait([noted, answer], return_when=asyncio.FIRST_COMPLETED)
        if answer.done() and not noted.done():
            answer.result()
        await noted
    finally:
        await cancel_and_wait(noted)


async def _wait_for_note(output: AsyncGenerator[OutputItem, None], key: str) -> None:
    async for item in output:
        if isinstance(item, ProcessView):
            break
        if not isinstance(item, OutputLine):
            continue
        if item.message.get("turn") == key:
            return
        if item.message.get("refused") == key:
            if _TAKEN in str(item.message.get("why")):
                return
            raise AgentFailed(f"the agent does not take the prompt: {item.message.get('why')}")
    raise AgentDown("the agent's process has ended; the next message starts it again")
