"""The suite that every driver passes: the contract of ``holdfast.drivers.base`` as tests.

It ships with the package, so that the author of a driver can run it. A test module of his says

    class TestMyDriver(DriverConformance):
        pass

and defines a fixture ``harness`` that gives a ``DriverHarness``; anyio's pytest plugin runs the rest. Each test makes
sandboxes of its own, destroys them, and finds nothing left. A test of something that the driver's capabilities do
not promise is skipped, and says so. Nothing in here imports pytest.

Tests use the tiny language of the fake driver's runner (``echo``, ``sleep``, ``cat``, ``exit``) unless
``DriverHarness.real_shell`` says that there is a real one.
"""

from holdfast.drivers.conformance.counts import CountsConformance
from holdfast.drivers.conformance.first_process import FirstProcessConformance
from holdfast.drivers.conformance.harness import DriverHarness
from holdfast.drivers.conformance.isolation import IsolationConformance
from holdfast.drivers.conformance.lifecycle import LifecycleConformance
from holdfast.drivers.conformance.limits import LimitsConformance
from holdfast.drivers.conformance.links import LinkConformance
from holdfast.drivers.conformance.memory import MemoryConformance
from holdfast.drivers.conformance.sleep import SleepConformance
from holdfast.drivers.conformance.snapshots import SnapshotConformance
from holdfast.drivers.conformance.stats import StatsConformance
from holdfast.drivers.conformance.workspaces import WorkspaceConformance

__all__ = ["DriverConformance", "DriverHarness"]


class DriverConformance(
    LifecycleConformance,
    LinkConformance,
    IsolationConformance,
    FirstProcessConformance,
    LimitsConformance,
    CountsConformance,
    StatsConformance,
    SleepConformance,
    MemoryConformance,
    SnapshotConformance,
    WorkspaceConformance,
):
    """All of it."""
