"""What a container of ours looks like from inside, whichever program starts it. Pure."""

import json

from holdfast.drivers.base import SandboxSpec
from holdfast.drivers.runtime_bundle import LINK_DIR, RUN_DIR, RuntimeBundle
from holdfast.images.layout import PATH

SANDBOX_USER = 1000
WORKSPACE = "/workspace"
LABEL_SESSION = "dev.holdfast.session"
LABEL_STATE_DIR = "dev.holdfast.state-dir"

MASKED = (
    "/proc/acpi",
    "/proc/allocinfo",
    "/proc/asound",
    "/proc/dynamic_debug",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/pagetypeinfo",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/vmallocinfo",
    "/sys/devices/virtual/dmi",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/fs/selinux",
    "/sys/kernel/debug",
    "/sys/kernel/security",
)
READONLY = (
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/pressure",  # who writes there has the kernel watch something, in memory that nobody accounts for
    "/proc/sys",
    # Where commands run as the sandbox's root they own these, too, and could have the kernel end the runner first.
    "/proc/1/oom_adj",
    "/proc/1/oom_score_adj",
    "/proc/1/task/1/oom_adj",
    "/proc/1/task/1/oom_score_adj",
)


def host_name(session_id: str) -> str:
    return session_id.removeprefix("ses_")[-12:] or "sandbox"


def environment(spec: SandboxSpec, bundle: RuntimeBundle, user: int) -> dict[str, str]:
    """Return what the runner is started with; it hands none of the HOLDFAST variables on."""
    name = "sandbox" if user else "root"
    return {
        "PATH": PATH,
        "PIP_BREAK_SYSTEM_PACKAGES": "1",  # the whole system is this session's own; there is nobody to protect it for
        "HOME": WORKSPACE,
        "USER": name,
        "LOGNAME": name,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "SANDBOX_ID": spec.session_id,
        "HOLDFAST_SESSION": spec.session_id,
        "HOLDFAST_TOKEN": spec.token,
        "HOLDFAST_SOCKET": f"{LINK_DIR}/host.sock",
        "HOLDFAST_RUN_DIR": RUN_DIR,
        "HOLDFAST_ENV": json.dumps({**spec.image.env, **spec.env}),
        "HOLDFAST_BASH": "\n".join(bundle.bash_argv()),
    }


def part_of(memory_mb: int, divisor: int) -> int:
    """Bytes of a file system in memory: full ones together must leave the sandbox room to live."""
    return max(memory_mb * 1024 // divisor, 1024) << 10
