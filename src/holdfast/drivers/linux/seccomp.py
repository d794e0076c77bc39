"""The system calls that a sandbox may make.

An allow-list: what is not named answers ENOSYS, as on an older kernel, so that programs take their fallback. Left out
on purpose, because they reach the kernel's less guarded parts or make no sense in a sandbox: mounting, new namespaces,
kernel modules, bpf, perf, keyrings, io_uring, userfaultfd, fanotify, file handles, clocks, swap, reboot, quotas.
``clone3`` answers ENOSYS because its flags are behind a pointer and cannot be checked; libc falls back to
``clone``, whose flags can.

One entry into the kernel, and not two: a 32-bit call on a 64-bit machine (``int 0x80``, x32, arm) ends its program.
``socketcall``, one of them, has its arguments behind a pointer, so that nothing about a socket could be
checked; and no filter of the 64-bit calls holds for their twins.

An argument that the kernel takes for an ``int`` is compared by its lower half alone, as the kernel does: what a program
has in the upper half neither opens a door nor closes one.
"""

_ENOSYS = 38
_EPERM = 1
_EPROTONOSUPPORT = 93
_EAFNOSUPPORT = 97
_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag of clone(2)
_INT = 0xFFFFFFFF  # the half of a register that is an int

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_KNOWN_FAMILIES = range(46)
_PROTOCOLS = {
    _AF_INET: (0, 1, 6, 17),  # any, icmp, tcp, udp
    _AF_INET6: (0, 6, 17, 58),
    _AF_NETLINK: (0, 4, 15),  # routes, the list of sockets, devices
}
"""What a family may be used for. The kernel loads a module for whatever else is asked: sctp, dccp, crypto, …"""
_ABSENT_PROTOCOLS = {
    _AF_INET: (33, 115, 132, 136, 262),  # dccp, l2tp, sctp, udplite, mptcp
    _AF_INET6: (33, 115, 132, 136, 262),
    _AF_NETLINK: tuple(number for number in range(32) if number not in _PROTOCOLS[_AF_NETLINK]),
}
"""Those that programs ask for and do without, if the answer is that this kernel does not have them."""

_ALLOWED = """
_llseek _newselect accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown
clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3 epoll_create
epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve
execveat exit exit_group faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat
fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fstatfs64 fsync ftruncate futex
futex_requeue futex_wait futex_waitv futex_wake futimesat get_mempolicy get_robust_list get_thread_area getcpu getcwd
getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority
getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr
inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup
io_submit ioctl ioprio_get ioprio_set ipc kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown
lgetxattr link linkat listen listxattr llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack mbind
membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mprotect
mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync
munlock munlockall munmap nanosleep newfstatat open openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2
pkey_alloc pkey_free pkey_mprotect poll ppoll pread64 preadv preadv2 process_mrelease process_vm_readv
process_vm_writev pselect6 ptrace pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg
recvmsg remap_file_pages removexattr rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending
rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max
sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl semget semop
semtimedop sendfile sendmmsg sendmsg sendto set_mempolicy set_robust_list set_thread_area set_tid_address setfsgid
setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid
setsockopt setuid setxattr shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 sigprocmask sigreturn
splice stat statfs statfs64 statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create
timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill
truncate ugetrlimit umask uname unlink unlinkat utime utimensat utimes vfork vmsplice wait4 waitid waitpid write
writev
"""

_FIRST_PROCESS = 1
_SPARE_FIRST_PROCESS = {"prlimit64": 0}
"""By which argument these name a process, which may be any but the runner: a limit on its memory or time ends it."""
_PR_SET_MM = 35
"""With it a process says where its command line is, without a privilege: in terabytes of nothing, which ``ps`` and all
others on the host that look at command lines would have to read."""
_SIGNALS = {"kill": 0, "pidfd_open": 0, "rt_sigqueueinfo": 0, "rt_tgsigqueueinfo": 0, "tgkill": 0, "tkill": 0}
"""The same for a kernel that lets a process of the sandbox signal its PID 1, as Linux does not."""

_REFUSED = """
acct add_key adjtimex bpf clock_adjtime clock_settime delete_module fanotify_init fanotify_mark finit_module fsconfig
fsmount fsopen fspick init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load
kexec_load keyctl lookup_dcookie mount mount_setattr move_mount move_pages nfsservctl open_by_handle_at open_tree
perf_event_open pivot_root quotactl quotactl_fd reboot request_key setdomainname sethostname setns settimeofday
swapoff swapon syslog umount umount2 unshare userfaultfd vhangup
"""

# For a Docker that knows no answer of our own for what is not listed: what libc and others try first.
_UNKNOWN = (
    "clone3 set_mempolicy_home_node process_madvise pidfd_getfd lsm_get_self_attr lsm_list_modules statmount listmount"
)

_ARCHITECTURES = {
    "x86_64": ["SCMP_ARCH_X86_64"],
    "aarch64": ["SCMP_ARCH_AARCH64"],
}

SyscallRule = dict[str, object]


def profile(machine: str) -> dict[str, object]:
    """Return the ``linux.seccomp`` part of an OCI configuration, for this kind of machine (``uname -m``)."""
    sparing = [rule for name, index in _SPARE_FIRST_PROCESS.items() for rule in _unless(name, index, _FIRST_PROCESS)]
    return _profile(machine, [*_rules(), *_unless("prctl", 0, _PR_SET_MM), *sparing])


def _profile(machine: str, rules: list[SyscallRule]) -> dict[str, object]:
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _ENOSYS,
        "architectures": _ARCHITECTURES.get(machine, []),
        "syscalls": rules,
    }


def _rules() -> list[SyscallRule]:
    return [
        {"names": _ALLOWED.split(), "action": "SCMP_ACT_ALLOW"},
        {"names": _REFUSED.split(), "action": "SCMP_ACT_ERRNO", "errnoRet": _EPERM},
        _when("clone", _masked(0, _NEW_NAMESPACES, 0)),
        *(_when("personality", _int(0, value)) for value in (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)),
        *_sockets(),
    ]


def _unless(name: str, index: int, value: int) -> list[SyscallRule]:
    """Allow a call unless this argument is ``value``. No comparison of ints means "not", so: some bit differs."""
    bits = [1 << bit for bit in range(32)]
    return [
        *(_when(name, _masked(index, bit, ~value & bit)) for bit in bits),
        _when(name, _int(index, value), errno=_EPERM),
    ]


def _sockets() -> list[SyscallRule]:
    """Return which kinds of sockets can be made. What is refused by name has the answer of a kernel without it."""
    return [
        *(_when(name, _int(0, _AF_UNIX)) for name in ("socket", "socketpair")),
        *(
            _when("socket", _int(0, family), _int(2, protocol))
            for family, protocols in _PROTOCOLS.items()
            for protocol in protocols
        ),
        *(
            _when("socket", _int(0, family), _int(2, protocol), errno=_EPROTONOSUPPORT)
            for family, protocols in _ABSENT_PROTOCOLS.items()
            for protocol in protocols
        ),
        *(
            _when("socket", _int(0, family), errno=_EAFNOSUPPORT)
            for family in _KNOWN_FAMILIES
            if family != _AF_UNIX and family not in _PROTOCOLS
        ),
    ]


def docker_profile(machine: str) -> dict[str, object]:
    """The same for Docker's ``--security-opt seccomp=``; before version 23 it has EPERM for what is not listed."""
    whole = profile(machine)
    rules = whole["syscalls"]
    assert isinstance(rules, list)
    unknown: SyscallRule = {"names": _UNKNOWN.split(), "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS}
    return {**whole, "syscalls": [*rules, unknown]}


def gvisor_profile(machine: str) -> dict[str, object]:
    """The same for gVisor, which knows no answer but EPERM: after that libc makes no thread, instead of falling back.

    So its own kernel gives the answer, which is not the host's: what is in the sandbox reaches the host by neither.
    And it protects no PID 1 from those inside, so that is done here, ahead of the rest: it takes rules in their order.
    """
    calls = {**_SPARE_FIRST_PROCESS, **_SIGNALS}
    return _profile(
        machine,
        [
            *(_when(name, _int(index, _FIRST_PROCESS), errno=_EPERM) for name, index in calls.items()),
            _when("prctl", _int(0, _PR_SET_MM), errno=_EPERM),
            *_rules(),
            {"names": [*_UNKNOWN.split(), *_SPARE_FIRST_PROCESS, "prctl"], "action": "SCMP_ACT_ALLOW"},
        ],
    )


def _when(name: str, *arguments: SyscallRule, errno: int | None = None) -> SyscallRule:
    """Allow a call, or answer it with an error, only if all of these arguments are so."""
    answer: SyscallRule = (
        {"action": "SCMP_ACT_ALLOW"} if errno is None else {"action": "SCMP_ACT_ERRNO", "errnoRet": errno}
    )
    return {"names": [name], **answer, "args": list(arguments)}


def _masked(index: int, mask: int, value: int) -> SyscallRule:
    return {"index": index, "op": "SCMP_CMP_MASKED_EQ", "value": mask, "valueTwo": value}


def _int(index: int, value: int) -> SyscallRule:
    """An argument that the kernel takes for an int is this number."""
    return _masked(index, _INT, value)
