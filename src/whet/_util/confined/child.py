"""Run as a program: bounds its own process, denies it everything but computing, and runs another program in it.

    python child.py PROGRAM SETTING

It imports nothing of whet. The bounds are inherited and cannot be lifted: hard resource limits; Landlock (Linux 5.13) for files;
a seccomp filter that allows only the calls below, so neither processes nor sockets can be made, nor signals sent to others.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import sys
from collections.abc import Sequence
from typing import Any

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_READ = 0b1100
"""LANDLOCK_ACCESS_FS_READ_FILE and READ_DIR."""
_READ_FILE, _WRITE_FILE = 0b100, 0b10
_EXECUTE = 0b1
_NOTHING = "/dev/null"
_ALLOWED = (
    # read, write, close, stat, fstat, lstat, poll, lseek, mmap, mprotect, munmap, brk, signal handling, pread, readv, writev
    *range(0, 15), 15, 17, 19, 20,
    # access, pipe, select, yield, mremap, msync, mincore, madvise, dup, dup2, pause, nanosleep, timers, getpid
    *range(21, 29), 32, 33, 34, 35, 36, 37, 38, 39,
    # exit, uname, getcwd, chdir, readlink, time of day, limits and usage (read), sysinfo, times, ids (read), their groups
    60, 63, 79, 80, 89, 96, 97, 98, 99, 100, 102, 104, 107, 108, 110, 111,
    # alternate stack, own thread pointer, thread id, time, futex, affinity (read), epoll, directory, robust list, clocks, exit
    131, 158, 186, 201, 202, 204, 213, 217, 218, 228, 229, 230, 231, 232, 233,
    # openat, newfstatat, readlinkat, faccessat, pselect, ppoll, robust list, eventfd, epoll_create, dup3, pipe2
    257, 262, 267, 269, 270, 271, 273, 290, 291, 292, 293,
    # getcpu, getrandom, membarrier, statx, rseq, faccessat2
    309, 318, 324, 332, 334, 439,
)  # fmt: skip
"""System calls of x86-64 that may be made with any arguments (arch/x86/entry/syscalls/syscall_64.tbl)."""
_DENIED = (
    # sockets; signals to others; tracing and memory of others; mounts and namespaces; keys; bpf, performance, io_uring
    *range(41, 56), 288, 299, 307, 62, 129, 200, 234, 297, 424, 101, 310, 311, 312, 438, 155, 165, 166, 272, 308, 428, 429,
    430, 431, 432, 433, 442, 248, 249, 250, 298, 321, 323, 425, 426, 427, 246, 320, 175, 176, 313,
)  # fmt: skip
"""System calls that tools in a workspace may not make; they may start programs, which inherit all bounds."""
_WRITTEN = 64 << 20
"""Bytes of a file that tools write in their workspace at most."""
_IOCTL, _FCNTL, _CLONE, _TGKILL, _PRLIMIT, _CLONE3 = 16, 72, 56, 234, 302, 435
_IOCTLS = (0x5401, 0x5421, 0x541B, 0x5450, 0x5451)
"""TCGETS, FIONBIO, FIONREAD, FIONCLEX, FIOCLEX."""
_FCNTLS = (0, 1, 2, 3, 4, 1030)
"""Descriptors and their flags, and no F_SETOWN or F_SETSIG, which send signals."""
_SET_LOCK = 6
"""F_SETLK, which a database wants before it reads a file: it is not done, and said to be done."""
OUT_OF_MEMORY = 70
"""The exit code of a program that a MemoryError ended."""
_THREAD = 0x00010000
_ALLOW, _SKIP, _EPERM, _ENOSYS, _KILL = 0x7FFF0000, 0x00050000, 0x00050001, 0x00050026, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06


def landlock_version() -> int:
    """The version of Landlock that the kernel offers; 0 where it offers none."""
    try:
        return max(0, int(_libc().syscall(_CREATE_RULESET, None, 0, 1)))
    except (OSError, AttributeError, TypeError):
        return 0


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), what)
    return result


def _limit_resources(seconds: float, memory: int, written: int) -> None:
    import resource

    whole = max(1, round(seconds + 0.5))
    for limit, value in (
        (resource.RLIMIT_CPU, (whole, whole + 1)),
        (resource.RLIMIT_AS, (memory, memory)),
        (resource.RLIMIT_FSIZE, (written, written)),
        (resource.RLIMIT_CORE, (0, 0)),
        (resource.RLIMIT_NOFILE, (64, 64)),
    ):
        try:
            resource.setrlimit(limit, value)
        except (ValueError, OSError):
            if sys.platform == "linux":
                raise


def _limit_files(readable: Sequence[str], workspace: bool) -> None:
    """Only `readable` and the working directory can be read;
    nothing but the null device can be written, and nothing made, renamed, removed or started. In a `workspace` programs in
    `readable` can be started, and the working directory is open to them."""
    libc, version = _libc(), landlock_version()
    handled = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF}.get(version, 0xFFFF)
    attributes = ctypes.create_string_buffer(struct.pack("Q", handled), 8)
    ruleset = _check(libc.syscall(_CREATE_RULESET, attributes, 8, 0), "landlock_create_ruleset")
    for path in (*readable, ".", _NOTHING, "/dev/urandom"):
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        rights = _READ if os.path.isdir(path) else _READ_FILE | (_WRITE_FILE if path == _NOTHING else 0)
        if workspace and os.path.isdir(path):
            rights = handled if path == "." else _READ | _EXECUTE
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, fd), 12)
        _check(libc.syscall(_ADD_RULE, ruleset, 1, rule, 0), f"landlock_add_rule {path}")
        os.close(fd)
    _check(libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _argument(number: int, values: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Allow when the low half of an argument is one of the values, else deny."""
    lines = [(_LOAD, 0, 0, 16 + 8 * number)]
    lines += [(_EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)]
    return [*lines, (_RETURN, 0, 0, _EPERM), (_RETURN, 0, 0, _ALLOW)]


_NATIVE = [
    (_LOAD, 0, 0, 4),
    (_EQUAL, 1, 0, 0xC000003E),
    (_RETURN, 0, 0, _KILL),
    (_LOAD, 0, 0, 0),
    (_AT_LEAST, 0, 1, 0x40000000),
    (_RETURN, 0, 0, _EPERM),
]
"""Calls of x86-64 alone go on; their number is loaded."""


def workspace_rules() -> list[tuple[int, int, int, int]]:
    """The filter for tools in a workspace, as lines like those of `seccomp_rules`."""
    rules = [*_NATIVE]
    for number in _DENIED:
        rules += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _EPERM)]
    return [*rules, (_RETURN, 0, 0, _ALLOW)]


def seccomp_rules(pid: int) -> list[tuple[int, int, int, int]]:
    """The filter as lines (code, jump if true, jump if false, value) of classic BPF; `pid`: the process that it is for."""
    rules = [*_NATIVE]
    for number in _ALLOWED:
        rules += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    read_limits = [  # of the process itself, and no new ones
        (_LOAD, 0, 0, 16), (_EQUAL, 1, 0, 0), (_EQUAL, 0, 5, pid),
        (_LOAD, 0, 0, 32), (_EQUAL, 0, 3, 0), (_LOAD, 0, 0, 36), (_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _EPERM),
    ]  # fmt: skip
    thread = [
        (_LOAD, 0, 0, 16),
        (_ANY_BIT, 1, 0, _THREAD),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    for number, lines in (
        (_IOCTL, _argument(1, _IOCTLS)),
        (
            _FCNTL,
            [(_LOAD, 0, 0, 24), (_EQUAL, 0, 1, _SET_LOCK), (_RETURN, 0, 0, _SKIP), *_argument(1, _FCNTLS)],
        ),
        (_TGKILL, _argument(0, (pid,))),
        (_PRLIMIT, read_limits),
        (_CLONE, thread),
        (_CLONE3, [(_RETURN, 0, 0, _ENOSYS)]),
    ):
        rules += [(_EQUAL, 0, len(lines), number), *lines]
    return [*rules, (_RETURN, 0, 0, _EPERM)]


def _limit_calls(workspace: bool) -> None:
    lines = workspace_rules() if workspace else seccomp_rules(os.getpid())
    rules = b"".join(struct.pack("HBBI", *rule) for rule in lines)
    code = ctypes.create_string_buffer(rules, len(rules))
    program = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(rules) // 8, ctypes.addressof(code)), 16
    )
    _check(_libc().prctl(22, 2, program, 0, 0), "seccomp")


def confine(setting: dict[str, Any]) -> None:
    """Bound this process for good. Raises OSError where a bound cannot be set."""
    if sys.platform == "linux":
        _libc().prctl(1, signal.SIGKILL, 0, 0, 0)  # dies with the thread that waits for it
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    workspace = setting["workspace"]
    _limit_resources(setting["seconds"], setting["memory"], _WRITTEN if workspace else 0)
    if setting["confined"]:
        _check(_libc().prctl(38, 1, 0, 0, 0), "no_new_privs")
        _limit_files(setting["readable"], workspace)
        _limit_calls(workspace)


def main(program: str, setting: str) -> None:
    """Run the program, confined."""
    with open(program, encoding="utf-8") as file:
        code = compile(file.read(), "<program>", "exec", dont_inherit=True)
    sys.argv = [program]
    confine(json.loads(setting))
    try:
        exec(code, {"__name__": "__main__"})  # noqa: S102
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


if __name__ == "__main__":
    main(*sys.argv[1:])
