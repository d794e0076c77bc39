"""What the figures were measured on, in one line."""

import os
import platform
import re
from pathlib import Path


def describe() -> str:
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} x {_processor()}, {_memory_gb():.0f} GB, Linux {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}; load at the end {load:.1f}"
    )


def _processor() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
