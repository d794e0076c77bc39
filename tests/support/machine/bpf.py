"""What a seccomp filter answers to a system call: the kernel's classic BPF, as far as filters use it."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

KILL_PROCESS, KILL_THREAD, TRAP, ERRNO, ALLOW = 0x80000000, 0, 0x00030000, 0x00050000, 0x7FFF0000
_ACTION, _DATA = 0xFFFF0000, 0xFFFF
_SEVEREST_FIRST = (KILL_PROCESS, KILL_THREAD, TRAP, ERRNO)
_STEP = struct.Struct("HBBI")
_CALL = struct.Struct("<IIQ6Q")


class Call(NamedTuple):
    architecture: int
    number: int
    arguments: tuple[int, ...] = ()


class Step(NamedTuple):
    code: int
    if_true: int
    if_false: int
    value: int


Program = Sequence[Step]


def program(raw: bytes) -> Program:
    return [Step(*fields) for fields in _STEP.iter_unpack(raw)]


def verdict(filters: Sequence[Program], call: Call) -> str:
    """``allow``, ``kill``, or ``errno N``: of several filters the severest answer holds."""
    answers = [_answer(one, call) for one in filters]
    for action in _SEVEREST_FIRST:
        for answer in answers:
            if answer & _ACTION == action:
                return f"errno {answer & _DATA}" if action == ERRNO else "kill"
    assert all(answer & _ACTION == ALLOW for answer in answers), answers
    return "allow"


def _answer(steps: Program, call: Call) -> int:
    words = (*call.arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = _CALL.pack(call.number, call.architecture, 0, *words)
    at = accumulator = 0
    while True:
        step = steps[at]
        at += 1
        kind = step.code & 0x07
        if kind == 0x06:  # return
            return step.value
        if kind == 0x00:  # load a word of the call
            accumulator = int.from_bytes(data[step.value : step.value + 4], "little")
        elif kind == 0x04:  # compute; filters only mask
            assert step.code == 0x54, hex(step.code)
            accumulator &= step.value
        elif kind == 0x05:  # jump
            at += _jump(step, accumulator)
        else:
            raise AssertionError(f"an unknown instruction: {step}")


def _jump(step: Step, accumulator: int) -> int:
    how = step.code & 0xF0
    if how == 0x00:
        return step.value
    holds = {
        0x10: accumulator == step.value,
        0x20: accumulator > step.value,
        0x30: accumulator >= step.value,
        0x40: accumulator & step.value != 0,
    }[how]
    return step.if_true if holds else step.if_false
