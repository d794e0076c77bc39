"""Whether gVisor works on this machine, for the tests that need it."""

import asyncio
import functools

from holdfast.drivers.oci.machine import examine


@functools.cache
def unusable_gvisor() -> str:
    """Why it cannot be used, in doctor's words; empty if it can."""
    failed = [check for check in asyncio.run(examine("runsc")).checks if check.fatal and not check.ok]
    return "; ".join(f"{check.name}: {check.detail}. {check.remedy}" for check in failed)
