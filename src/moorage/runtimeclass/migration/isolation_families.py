"""Isolation levels of known runtimes, by the names that classes, handlers and programs have.

Only for what a migration writes: at run time a level comes from a class's label or from probes.
Sources: the runtimes' own documents; Kata's handlers are named after their hypervisor.
"""

from __future__ import annotations

import re

SHARED_KERNEL = "shared-kernel"
USER_SPACE_KERNEL = "user-space-kernel"
VIRTUAL_MACHINE = "virtual-machine"
CONFIDENTIAL_VIRTUAL_MACHINE = "confidential-virtual-machine"

LEVELS = (SHARED_KERNEL, USER_SPACE_KERNEL, VIRTUAL_MACHINE, CONFIDENTIAL_VIRTUAL_MACHINE)
"""Levels from weak to strong."""

_FAMILIES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"(?:kata|containerd-shim-kata).*(?:-tdx|-snp|-sev|-se|-cca|-coco.*)(?:-v2)?"),
        CONFIDENTIAL_VIRTUAL_MACHINE,
    ),
    (re.compile(r"kata(?:-.*)?|containerd-shim-kata.*|firecracker|krun|crun-vm"), VIRTUAL_MACHINE),
    (re.compile(r"runhcs-wcow-hypervisor|hyperv"), VIRTUAL_MACHINE),
    (re.compile(r"gvisor(?:-.*)?|runsc(?:-.*)?|containerd-shim-runsc.*"), USER_SPACE_KERNEL),
    (re.compile(r"runc|crun|youki|nvidia(?:-.*)?|runhcs-wcow-process|native"), SHARED_KERNEL),
)


def isolation_of(name: str) -> str:
    """Return the level of a class, handler or program of this name, empty if it is unknown."""
    return next((level for pattern, level in _FAMILIES if pattern.fullmatch(name)), "")


def weakest(names: list[str]) -> str:
    """Return the weakest level of these names, empty if one of them is unknown."""
    levels = [isolation_of(name) for name in names]
    return min(levels, key=LEVELS.index) if levels and all(levels) else ""
