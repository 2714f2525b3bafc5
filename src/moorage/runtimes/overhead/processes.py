"""Processes behind a pod on this machine: those in its cgroup, and the runtime's own outside it.

What runs outside the pod's cgroup (the monitor of an OCI runtime, a containerd shim) is charged to
no pod, but costs its node memory; it is found by the identities of the pod's containers in its
command line. Memory is the proportional set size: pages that processes share count once in all.
Source: proc(5), smaps_rollup; KEP-688 (overhead includes the shim).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from moorage.api.pods import Pod
from moorage.linux.cgroups import Cgroups, directory_in
from moorage.linux.process_memory import proportional_bytes
from moorage.linux.process_tree import all_pids, arguments

_IDENTITY = re.compile(r"[0-9a-f]{32,64}")
_MOST_NAME = 64


class RuntimeProcesses(msgspec.Struct, frozen=True, kw_only=True):
    """Processes of one program behind a pod; `memory_bytes` is their sum.

    `is_charged` says whether they are in the pod's cgroup.
    """

    program: str
    count: int
    memory_bytes: int
    is_charged: bool


def processes_behind(
    pod: Pod, cgroups: Cgroups, path: str, guest: str | None = None
) -> tuple[RuntimeProcesses, ...]:
    """Return the processes behind a pod whose cgroup has this path, by program. Blocks.

    `guest` is the cgroup of its virtual machine outside of that; its usage counts as the pod's.
    """
    mount = cgroups.mount_of("memory")
    if mount is None:
        return ()
    directory = directory_in(mount, path)
    charged = set(_pids_in(directory))
    if guest is not None:
        charged |= set(_pids_in(directory_in(mount, guest)))
    identities = identities_of(pod, cgroup_names(cgroups, path))
    found: list[tuple[int, str, bool]] = []
    for pid in all_pids():
        argv = arguments(pid)
        is_charged = pid in charged
        if argv is None or not (is_charged or is_about(argv, identities)):
            continue
        found.append((pid, program_of(argv), is_charged))
    return _grouped((program, proportional_bytes(pid), here) for pid, program, here in found)


def cgroup_names(cgroups: Cgroups, path: str) -> list[str]:
    """Return the names of the cgroups below one. Blocks."""
    mount = cgroups.mount_of("memory")
    if mount is None:
        return []
    directory = directory_in(mount, path)
    return [entry.name for entry in directory.glob("**/") if entry != directory]


def identities_of(pod: Pod, cgroup_names: Iterable[str]) -> frozenset[str]:
    """Return the identities of a pod's containers and sandbox that command lines name."""
    texts = [one.container_id for one in pod.status.container_statuses]
    texts += cgroup_names
    return frozenset(match for text in texts for match in _IDENTITY.findall(text))


def is_about(argv: Sequence[str], identities: frozenset[str]) -> bool:
    """Return whether a command line names one of the identities."""
    return any(match in identities for word in argv for match in _IDENTITY.findall(word))


def program_of(argv: Sequence[str]) -> str:
    """Return the name of a command line's program, of at most 64 characters."""
    words = argv[0].split() if argv else []
    return PurePosixPath(words[0]).name[:_MOST_NAME] if words else "(without a command line)"


def outside_bytes(processes: Iterable[RuntimeProcesses]) -> int:
    """Return the memory of processes that are not charged to the pod."""
    return sum(one.memory_bytes for one in processes if not one.is_charged)


def _grouped(found: Iterable[tuple[str, int | None, bool]]) -> tuple[RuntimeProcesses, ...]:
    counts: Counter[tuple[str, bool]] = Counter()
    sizes: Counter[tuple[str, bool]] = Counter()
    for program, size, is_charged in found:
        if size is not None:
            counts[program, is_charged] += 1
            sizes[program, is_charged] += size
    return tuple(
        RuntimeProcesses(
            program=program, count=count, memory_bytes=sizes[program, here], is_charged=here
        )
        for (program, here), count in sorted(counts.items())
    )


def _pids_in(directory: Path) -> Iterable[int]:
    for procs in (directory, *directory.glob("**/")):
        try:
            text = (procs / "cgroup.procs").read_text()
        except OSError:
            # The cgroup is gone, or its threads are managed one by one (EOPNOTSUPP).
            continue
        yield from map(int, text.split())
