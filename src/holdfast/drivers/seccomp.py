"""The system calls that a sandbox may make.

An allow-list: what is not named answers ENOSYS, as on an older kernel, so that programs take their fallback. Left out
on purpose, because they reach the kernel's less guarded parts or make no sense in a sandbox: mounting, new namespaces,
kernel modules, bpf, perf, keyrings, io_uring, userfaultfd, fanotify, file handles, clocks, swap, reboot, quotas.
``clone3`` answers ENOSYS because its flags are behind a pointer and cannot be checked; libc falls back to
``clone``, whose flags can.
"""

_ENOSYS = 38
_EPERM = 1
_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag of clone(2)
_AF_NETLINK, _AF_UNIX, _AF_INET, _AF_INET6 = 16, 1, 2, 10

_ALLOWED = """
_llseek _newselect accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown chown32
clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep clock_nanosleep_time64 close
close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait
epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2
fadvise64 fadvise64_64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync
fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate
ftruncate64 futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake futimesat get_mempolicy
get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid getegid32 geteuid geteuid32 getgid getgid32
getgroups getgroups32 getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid
getresgid32 getresuid getresuid32 getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid
getuid32 getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents
io_pgetevents io_pgetevents_time64 io_setup io_submit ioctl ioprio_get ioprio_set ipc kill landlock_add_rule
landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr link linkat listen listxattr llistxattr
lremovexattr lseek lsetxattr lstat lstat64 madvise map_shadow_stack mbind membarrier memfd_create memfd_secret
mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mmap2 mprotect mq_getsetattr mq_notify mq_open
mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget msgrcv
msgsnd msync munlock munlockall munmap nanosleep newfstatat open openat openat2 pause pidfd_open
pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll ppoll_time64 prctl pread64 preadv preadv2
prlimit64 process_mrelease process_vm_readv process_vm_writev pselect6 pselect6_time64 ptrace pwrite64 pwritev
pwritev2 read readahead readlink readlinkat readv recv recvfrom recvmmsg recvmmsg_time64 recvmsg remap_file_pages
removexattr rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask
rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo
sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam
sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop semtimedop_time64 send sendfile
sendfile64 sendmmsg sendmsg sendto set_mempolicy set_robust_list set_thread_area set_tid_address setfsgid
setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32 setitimer setpgid setpriority setregid setregid32
setresgid setresgid32 setresuid setresuid32 setreuid setreuid32 setrlimit setsid setsockopt setuid setuid32 setxattr
shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 sigprocmask sigreturn socketcall socketpair splice
stat stat64 statfs statfs64 statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create
timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64 timerfd_create
timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times tkill truncate truncate64 ugetrlimit
umask uname unlink unlinkat utime utimensat utimensat_time64 utimes vfork vmsplice wait4 waitid waitpid write writev
"""

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
    "x86_64": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"],
    "aarch64": ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"],
}

Rule = dict[str, object]


def profile(machine: str) -> dict[str, object]:
    """The ``linux.seccomp`` part of an OCI configuration, for this kind of machine (``uname -m``).

    Only its own architectures, and not every one there is: each costs time at every start.
    """
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _ENOSYS,
        "architectures": _ARCHITECTURES.get(machine, []),
        "syscalls": [
            {"names": _ALLOWED.split(), "action": "SCMP_ACT_ALLOW"},
            {"names": _REFUSED.split(), "action": "SCMP_ACT_ERRNO", "errnoRet": _EPERM},
            _when("clone", 0, "SCMP_CMP_MASKED_EQ", _NEW_NAMESPACES, 0),
            *(_when("socket", 0, "SCMP_CMP_EQ", family) for family in (_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK)),
            *(_when("personality", 0, "SCMP_CMP_EQ", value) for value in (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)),
        ],
    }


def docker_profile(machine: str) -> dict[str, object]:
    """The same for Docker's ``--security-opt seccomp=``; before version 23 it has EPERM for what is not listed."""
    return _with(machine, {"names": _UNKNOWN.split(), "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS})


def gvisor_profile(machine: str) -> dict[str, object]:
    """The same for gVisor, which knows no answer but EPERM: after that libc makes no thread, instead of falling back.

    So its own kernel gives the answer, which is not the host's: what is in the sandbox reaches the host by neither.
    """
    return _with(machine, {"names": _UNKNOWN.split(), "action": "SCMP_ACT_ALLOW"})


def _with(machine: str, rule: Rule) -> dict[str, object]:
    whole = profile(machine)
    syscalls = whole["syscalls"]
    assert isinstance(syscalls, list)
    return {**whole, "syscalls": [*syscalls, rule]}


def _when(name: str, index: int, op: str, value: int, value_two: int = 0) -> Rule:
    """Allow a call only if one of its arguments is so."""
    argument = {"index": index, "op": op, "value": value, "valueTwo": value_two}
    return {"names": [name], "action": "SCMP_ACT_ALLOW", "args": [argument]}
