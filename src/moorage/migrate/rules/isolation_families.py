"""Isolation levels of known runtimes, by the names that classes, handlers and programs have.

Only for what a migration writes: at run time a level comes from a class's label or from probes.
Sources: the runtimes' own documents; Kata's handlers are named after their hypervisor.
"""

from __future__ import annotations

import re

from moorage.runtimeclass.isolation import Isolation

_FAMILIES: tuple[tuple[re.Pattern[str], Isolation], ...] = (
    (
        re.compile(r"(?:kata|containerd-shim-kata).*(?:-tdx|-snp|-sev|-se|-cca|-coco.*)(?:-v2)?"),
        Isolation.CONFIDENTIAL_VIRTUAL_MACHINE,
    ),
    (
        re.compile(r"kata(?:-.*)?|containerd-shim-kata.*|firecracker|krun|crun-vm"),
        Isolation.VIRTUAL_MACHINE,
    ),
    (re.compile(r"runhcs-wcow-hypervisor|hyperv"), Isolation.VIRTUAL_MACHINE),
    (
        re.compile(r"gvisor(?:-.*)?|runsc(?:-.*)?|containerd-shim-runsc.*"),
        Isolation.USER_SPACE_KERNEL,
    ),
    (
        re.compile(r"runc|crun|youki|nvidia(?:-.*)?|runhcs-wcow-process|native"),
        Isolation.SHARED_KERNEL,
    ),
)


def isolation_of(name: str) -> str:
    """Return the level of a class, handler or program of this name, empty if it is unknown."""
    level = _level(name)
    return level.label if level is not None else ""


def weakest(names: list[str]) -> str:
    """Return the weakest level of these names, empty if one of them is unknown."""
    levels = [level for name in names if (level := _level(name)) is not None]
    return min(levels).label if levels and len(levels) == len(names) else ""


def _level(name: str) -> Isolation | None:
    return next((level for pattern, level in _FAMILIES if pattern.fullmatch(name)), None)
