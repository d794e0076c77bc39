"""Seccomp filters as programs: made by libseccomp from a profile, or read from a process that lives under one."""

import ctypes
import errno
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from support.machine.bpf import Program, program

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""As the kernel and libseccomp number them."""
FOREIGN = {"x86_64": {"i386": 0x40000003}, "aarch64": {"arm": 0x40000028}}
"""The other set of calls that such a machine's kernel answers to."""
X32_BIT = 0x40000000

_ACTIONS = {"SCMP_ACT_ALLOW": 0x7FFF0000, "SCMP_ACT_ERRNO": 0x00050000}
_OPS = {"SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}
_PTRACE_SEIZE, _PTRACE_INTERRUPT, _PTRACE_DETACH, _PTRACE_SECCOMP_GET_FILTER = 0x4206, 0x4207, 17, 0x420C
_WALL = 0x40000000


class _Argument(ctypes.Structure):
    _fields_ = (
        ("index", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("value", ctypes.c_uint64),
        ("value_two", ctypes.c_uint64),
    )


def library() -> ctypes.CDLL | None:
    """libseccomp, which the runtimes use, too; None where it is not installed."""
    try:
        found = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    except OSError:
        return None
    found.seccomp_init.restype = ctypes.c_void_p
    found.seccomp_init.argtypes = [ctypes.c_uint32]
    found.seccomp_arch_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    found.seccomp_arch_remove.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    found.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.POINTER(_Argument),
    ]
    found.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    found.seccomp_release.argtypes = [ctypes.c_void_p]
    return found


def number_of(lib: ctypes.CDLL, machine: str, name: str) -> int:
    """A call's number on such a machine; negative where it has none."""
    return int(lib.seccomp_syscall_resolve_name_arch(ctypes.c_uint32(ARCHITECTURES[machine]), name.encode()))


def compile_profile(lib: ctypes.CDLL, profile: Mapping[str, Any], machine: str) -> Program:
    """As a runtime does it."""
    default = _action(profile["defaultAction"], profile.get("defaultErrnoRet"))
    context = lib.seccomp_init(default)
    try:
        if machine != os.uname().machine:
            assert lib.seccomp_arch_add(context, ARCHITECTURES[machine]) == 0
            assert lib.seccomp_arch_remove(context, ARCHITECTURES[os.uname().machine]) == 0
        for rule in profile["syscalls"]:
            for name in rule["names"] if _action(rule["action"], rule.get("errnoRet")) != default else ():
                _add(lib, context, name, rule)
        with tempfile.TemporaryFile() as file:
            assert lib.seccomp_export_bpf(context, file.fileno()) == 0
            file.seek(0)
            return program(file.read())
    finally:
        lib.seccomp_release(context)


def _add(lib: ctypes.CDLL, context: int, name: str, rule: Mapping[str, Any]) -> None:
    number = lib.seccomp_syscall_resolve_name(name.encode())
    if number == -1:
        return  # newer than the library
    listed = rule.get("args", ())
    arguments = (_Argument * max(len(listed), 1))(
        *(_Argument(one["index"], _OPS[one["op"]], one["value"], one["valueTwo"]) for one in listed)
    )
    action = _action(rule["action"], rule.get("errnoRet"))
    added = lib.seccomp_rule_add_array(context, action, number, len(listed), arguments)
    assert added == 0, f"{name}: {os.strerror(-added)}"


def _action(name: str, number: object) -> int:
    return _ACTIONS[name] | (number if isinstance(number, int) else 0)


def filters_of(pid: int) -> list[Program] | None:
    """Those that a process lives under, read from the kernel; None where it does not tell (not root, no ptrace)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(_PTRACE_SEIZE, pid, None, None) != 0:
        return None
    try:
        libc.ptrace(_PTRACE_INTERRUPT, pid, None, None)
        os.waitpid(pid, _WALL)
        return _read_filters(libc, pid)
    finally:
        libc.ptrace(_PTRACE_DETACH, pid, None, None)


def _read_filters(libc: ctypes.CDLL, pid: int) -> list[Program] | None:
    found: list[Program] = []
    while True:
        steps = libc.ptrace(_PTRACE_SECCOMP_GET_FILTER, pid, len(found), None)
        if steps < 0:
            return found if ctypes.get_errno() == errno.ENOENT else None
        buffer = ctypes.create_string_buffer(steps * 8)
        libc.ptrace(_PTRACE_SECCOMP_GET_FILTER, pid, len(found), buffer)
        found.append(program(buffer.raw))
