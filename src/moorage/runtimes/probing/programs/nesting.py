"""Nesting: what a container engine inside a container does before it starts anything."""

from __future__ import annotations

from moorage.runtimes.probing.programs.script import AT_FDCWD, Script, text_of

STEPS = ("namespaces", "private", "tmpfs", "pivot", "proc")
"""Names of the reported results, in their order."""

_NEW = 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
_MS_REC_PRIVATE = 0x44000
_TMP, _OLD = text_of("/tmp"), text_of("/tmp/old")


def write(script: Script) -> None:
    """Write the program."""
    with script.child("nesting"):
        # Mounts, host name, IPC, processes, network.
        namespaces = script.call("unshare", _NEW)
        private = script.call("mount", text_of("none"), text_of("/"), 0, _MS_REC_PRIVATE, 0)
        tmpfs = script.call("mount", text_of("none"), _TMP, text_of("tmpfs"), 0, 0)
        script.call("mkdirat", AT_FDCWD, _OLD, 0o700)
        script.call("mkdirat", AT_FDCWD, text_of("/tmp/proc"), 0o700)
        # /proc must be that of the new namespace, which its first process is in.
        with script.child():
            proc = script.call(
                "mount", text_of("proc"), text_of("/tmp/proc"), text_of("proc"), 0, 0
            )
        pivot = script.call("pivot_root", _TMP, _OLD)
    for name, cell in zip(STEPS, (namespaces, private, tmpfs, pivot, proc), strict=True):
        script.report(name, cell)
