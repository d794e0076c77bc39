import json

from holdfast.broker.accounts import SpendingLimits
from holdfast.records.network import NetworkPolicy
from holdfast.threads import options
from holdfast.threads.types import IdlePolicy, Repo, ThreadOptions

ALL = ThreadOptions(
    agent="scripted",
    image="python",
    model="m-1",
    cpus=0.5,
    memory_mb=128,
    pids=64,
    disk_mb=100,
    network=NetworkPolicy.allowing(["pypi.org"]),
    env={"A": "1"},
    idle=IdlePolicy(10.0, None, 30.0),
    model_preferences=("a/1", "b/2"),
    allowed_models=("a/*",),
    limits=SpendingLimits(10, None, 2.5),
    permissions=("ask bash",),
    repo=Repo("https://example.com/x/y", "main", "v1"),
    persona=("soul.md",),
    system_prompt="be brief",
    retry_broken_streams=False,
    preview_port=3000,
)


def test_they_survive_being_kept() -> None:
    for one in (ALL, ThreadOptions()):
        assert options.from_json(json.loads(json.dumps(options.to_json(one)))) == one
    assert options.to_json(ThreadOptions()) == {}


def test_what_is_newer_counts() -> None:
    merged = options.merged(ALL, ThreadOptions(image="other", idle=IdlePolicy(None, None, None)))
    assert (merged.image, merged.memory_mb, merged.idle) == ("other", 128, IdlePolicy(None, None, None))
    emptied = options.merged(ALL, ThreadOptions(permissions=(), limits=SpendingLimits(), retry_broken_streams=True))
    assert (emptied.permissions, emptied.limits, emptied.persona) == ((), SpendingLimits(), ("soul.md",))
    assert emptied.retry_broken_streams is True


def test_the_sandbox_of_a_thread_neither_sleeps_nor_ends_by_itself() -> None:
    request = options.request_for(ALL, "slack:1")
    assert request.kept
    assert request.sleep is not None and request.sleep.pause_after_seconds is None
    assert request.metadata == {"thread": "slack:1"}
    assert (request.image, request.cpus, request.network) == ("python", 0.5, ALL.network)


def test_the_limit_of_its_key() -> None:
    assert options.max_sessions({"max_sessions": 3}) == 3
    assert options.max_sessions({}) is None
