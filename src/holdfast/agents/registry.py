"""The agents that a daemon offers, by name. An adapter is imported when it is first asked for."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

from holdfast.agents.base import Agent
from holdfast.agents.known import KNOWN
from holdfast.errors import BadInput, ConfigError


class AgentRegistry:
    """The agents of one daemon.

    ``default`` is for threads that name no agent: the first of ``names``, unless it is given. ``seconds`` overrides
    timeouts of all agents, by the field names of ``supervisor.Timeouts``; for the rest each agent has its own values.
    """

    def __init__(
        self, names: Sequence[str], default: str | None = None, seconds: Mapping[str, float] | None = None
    ) -> None:
        unknown = sorted(set(names) - set(KNOWN))
        if unknown:
            raise ConfigError(f"agents: there is no {', '.join(unknown)}; known are {', '.join(sorted(KNOWN))}")
        if default is not None and default not in names:
            raise ConfigError(f"default_agent: {default} is not among agents")
        self.names = tuple(names)
        self.default = default if default is not None else next(iter(names), None)
        self._agents: dict[str, Agent] = {}
        self._seconds = dict(seconds or {})

    def add(self, agent: Agent) -> None:
        """Add an agent that was made elsewhere, under its own name; for example the fake of a test."""
        self._agents[agent.name] = agent
        if agent.name not in self.names:
            self.names = (*self.names, agent.name)
        self.default = self.default or agent.name

    def get(self, name: str | None = None) -> Agent:
        """Return the agent of this name, or the default agent; always the same object."""
        name = name if name is not None else self.default
        if name is None or name not in self.names:
            offered = ", ".join(self.names) or "none; add some to the setting agents"
            raise BadInput(f"agent: {name or 'no default'} is not offered here; there is {offered}")
        if name not in self._agents:
            module, _, cls = KNOWN[name].adapter.partition(":")
            adapter = getattr(importlib.import_module(module), cls)
            known = {one.name for one in fields(adapter.usual)}
            chosen = {field: value for field, value in self._seconds.items() if field in known}
            agent = adapter(replace(adapter.usual, **chosen))
            assert isinstance(agent, Agent)
            self._agents[name] = agent
        return self._agents[name]
