"""The suite that every agent's adapter passes: the contract of ``holdfast.agents.base`` as tests.

It ships with the package, so that the author of an adapter can run it. A test module of his says

    class TestMyAgent(AgentConformance):
        pass

and defines a fixture ``harness`` that gives a ``Harness``; anyio's pytest plugin runs the rest. A test of something
that the agent cannot do, or that the harness cannot make it do, is skipped, and says so. Nothing in here imports
pytest.
"""

from holdfast.agents.conformance.abilities import AbilityConformance
from holdfast.agents.conformance.harness import Harness
from holdfast.agents.conformance.permissions import PermissionConformance
from holdfast.agents.conformance.process import ProcessConformance
from holdfast.agents.conformance.questions import QuestionConformance
from holdfast.agents.conformance.recovery import RecoveryConformance
from holdfast.agents.conformance.streams import StreamConformance
from holdfast.agents.conformance.turns import TurnConformance

__all__ = ["AgentConformance", "Harness"]


class AgentConformance(
    TurnConformance,
    StreamConformance,
    QuestionConformance,
    PermissionConformance,
    RecoveryConformance,
    ProcessConformance,
    AbilityConformance,
):
    """The whole suite."""
