"""When a process that runs is taken as it is, and when it is ended first."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from holdfast.agents.base import Place, Sandbox
from holdfast.agents.supervisor.launch import Launch
from holdfast.agents.supervisor.supervisor import AgentProcess, Supervisor
from holdfast.errors import AgentDown
from holdfast.sessions.use.processes import ProcessView
from holdfast.vocabulary.models import channel_tag

pytestmark = pytest.mark.anyio

OLD = Launch("codex", ["codex-acp"], {"RULES": "old"})
NEW = replace(OLD, env={"RULES": "new"})


class Processes:
    """One agent's process, started as ``OLD`` says."""

    def __init__(self) -> None:
        self.signals: list[str] = []
        command = OLD.command(channel_tag("default"), 3)
        self._view = ProcessView("prc_1", 7, command, False, True, None, 0.0, None, 0, 0)

    async def list(self, _session_id: str) -> Sequence[ProcessView]:
        return [self._view]

    async def get(self, _session_id: str, _process_id: str, *, wait_ms: int = 0) -> ProcessView:
        return self._view

    async def signal(self, _session_id: str, _process_id: str, name: str) -> None:
        self.signals.append(name)
        self._view = replace(self._view, running=False, exit_code=143)


class Inside:
    def __init__(self) -> None:
        self.processes = Processes()


async def answers(_found: AgentProcess) -> None:
    """It lives."""


def place_in(inside: Inside, *, in_turn: bool) -> Place:
    return Place("ses_1", cast(Sandbox, inside), in_turn=in_turn)


async def test_a_turn_is_not_ended_by_another_configuration() -> None:
    inside, supervisor = Inside(), Supervisor("codex")
    place = place_in(inside, in_turn=True)
    assert (await supervisor.running(place, NEW)).generation == 3
    assert (await supervisor.start(place, NEW, answers, answers)).generation == 3
    assert inside.processes.signals == []


async def test_between_turns_it_is_started_again() -> None:
    inside, supervisor = Inside(), Supervisor("codex")
    place = place_in(inside, in_turn=False)
    assert (await supervisor.running(place, OLD)).generation == 3
    with pytest.raises(AgentDown, match="has changed"):
        await supervisor.running(place, NEW)
    with pytest.raises(AttributeError):  # nothing can be started in here
        await supervisor.start(place, NEW, answers, answers)
    assert inside.processes.signals == ["TERM"]
