"""Runs inside a sandbox, on its own Python; prints what the kernel answered to what the first argument asks for.

{"refused": [numbers], "socket": number, "socketpair": number, "foreign": true}: what is allowed is not called.
"""

import ctypes
import errno
import json
import mmap
import os
import signal
import struct
import sys
from collections.abc import Callable, Sequence

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_SOCKETCALL, _SOCKET_32, _SOCKETPAIR_32, _GETPID_32 = 102, 359, 360, 20
_AF_VSOCK, _STREAM = 40, 1
_GARBAGE = 0xDEADBEEF << 32
_MAP_32BIT = 0x40


def call(number: int, *arguments: int) -> str:
    """``allow``, or the error's name."""
    ctypes.set_errno(0)
    words = [ctypes.c_long(word if word < 1 << 63 else word - (1 << 64)) for word in (number, *arguments)]
    if _libc.syscall(*words) >= 0:
        return "allow"
    return errno.errorcode.get(ctypes.get_errno(), "?")


def socket_of(number: int, family: int, protocol: int = 0) -> object:
    """The answer for such a socket, of whichever type the family has."""
    answers = {call(number, family, kind, protocol) for kind in (1, 2, 3, 5)}
    return "allow" if "allow" in answers else sorted(answers)


def pair_of(number: int, family: int) -> str:
    place = ctypes.create_string_buffer(8)
    return call(number, family, _STREAM, 0, ctypes.addressof(place))


def in_child(action: Callable[[], int]) -> object:
    """How a child ends that does this: what it returns as its exit code, or the signal's name."""
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        os._exit(action())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return signal.Signals(-code).name if code < 0 else code


def compat_call(number: int, first: int = 0, second: int = 0, third: int = 0, block: Sequence[int] = ()) -> int:
    """The answer to ``int 0x80``; ``block`` are words in memory that the second argument points to."""
    page = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_32BIT, 7)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    if block:
        page[2048 : 2048 + 4 * len(block)] = struct.pack(f"{len(block)}I", *block)
        second = address + 2048
    # push rbx; mov eax, ebx, ecx, edx as the 32-bit entry takes them, and edi, esi as the other one does
    words = ((0xB8, number), (0xBB, first), (0xB9, second), (0xBA, third), (0xBF, first), (0xBE, second))
    code = b"\x53" + b"".join(struct.pack("<BI", opcode, word) for opcode, word in words)
    page[: len(code) + 4] = code + b"\xcd\x80\x5b\xc3"
    answer = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    return 0 if answer >= 0 else min(-answer, 255)


def x32_call(number: int, *arguments: int) -> int:
    return ctypes.get_errno() if call(0x40000000 | number, *arguments) != "allow" else 0


def foreign() -> dict[str, object]:
    """Calls by the 32-bit entry, and those of x32, each of which may be the end of who makes it."""
    tries = {
        "getpid": lambda: compat_call(_GETPID_32),
        "socketcall": lambda: compat_call(_SOCKETCALL, 1, block=(_AF_VSOCK, _STREAM, 0)),
        "socketcall for a pair": lambda: compat_call(_SOCKETCALL, 8, block=(1, _STREAM, 0, 0)),
        "socket": lambda: compat_call(_SOCKET_32, _AF_VSOCK, _STREAM),
        "socketpair": lambda: compat_call(_SOCKETPAIR_32, _AF_VSOCK, _STREAM),
        "socket by its own number": lambda: compat_call(41, _AF_VSOCK, _STREAM),
        "x32 getpid": lambda: x32_call(39),
        "x32 socket": lambda: x32_call(41, _AF_VSOCK, _STREAM, 0),
    }
    return {name: in_child(action) for name, action in tries.items()}


def main() -> None:
    wish = json.loads(sys.argv[1])
    found = {
        "numbers": {number: call(number, *[2**64 - 1] * 6) for number in wish["refused"]},
        "families": {family: socket_of(wish["socket"], family) for family in range(64)},
        "garbage": {family: socket_of(wish["socket"], family | _GARBAGE) for family in range(64)},
        "pairs": {family: pair_of(wish["socketpair"], family) for family in range(64)},
        "pairs with garbage": {family: pair_of(wish["socketpair"], family | _GARBAGE) for family in range(64)},
        "netlink": {protocol: socket_of(wish["socket"], 16, protocol) for protocol in range(40)},
        "inet": {protocol: socket_of(wish["socket"], 2, protocol) for protocol in range(270)},
        "inet6": {protocol: socket_of(wish["socket"], 10, protocol) for protocol in range(270)},
        "foreign": foreign() if wish["foreign"] else {},
    }
    print(json.dumps(found))


main()
