"""Limits: programs that use more than they were given, of CPU time, memory and processes."""

from __future__ import annotations

from moorage.runtimes.probing.programs.script import Script, text_of

CPU_SECONDS = 1
PROCESS_DOUBLINGS = 8
"""A process that is doubled so often becomes 256."""

MEMORY_BYTES = 384 * 1024 * 1024
"""What the memory program takes: more than any container of the probes may have."""

_PROT_READ_WRITE = 3
_MAP_PRIVATE_ANONYMOUS_POPULATE = 0x8022
_LINGER_MS = 400
_SEEK_CUR = 1


def write_cpu(script: Script) -> None:
    """Write a program that works for CPU_SECONDS, and reports how many pieces of work it did.

    A piece is a byte written to a file in memory. The CPU time that a process is said to have used
    is not always measured: a kernel in user space takes it from its own clock.
    """
    file = script.call("memfd_create", text_of("work"), 0)
    with script.child("cpu", limit_s=CPU_SECONDS):
        script.call("write", file, b"x", 1, repeats=True)
    script.report("work", script.call("lseek", file, 0, _SEEK_CUR))


def write_memory(script: Script) -> None:
    """Write a program that takes MEMORY_BYTES, and reports that if it still can."""
    taken = script.call(
        "mmap", 0, MEMORY_BYTES, _PROT_READ_WRITE, _MAP_PRIVATE_ANONYMOUS_POPULATE, -1, 0
    )
    script.report("taken", taken)


def write_processes(script: Script) -> None:
    """Write a program that becomes many, and reports the result of each doubling."""
    with script.child("doubling"):
        doublings = [script.split() for _ in range(PROCESS_DOUBLINGS)]
        script.sleep(_LINGER_MS)
    script.sleep(_LINGER_MS // 4)
    for number, cell in enumerate(doublings):
        script.report(f"doubling-{number}", cell)
