"""What processes take of the machine's processors."""

import os
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """All threads of a process, since it began; as fine as the kernel's clock, a hundredth of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
