"""Handler resolution: from a pod's `runtimeClassName` to its CRI handler.

Source: KEP-585 "RuntimeClass". An absent or empty name, and the reserved name `legacy`, mean the
implicit class without rules: the runtime's default handler. Upstream's API server refuses the
empty name (HTTP 500) and gives `legacy` no meaning; see docs/differences.md.
"""

from __future__ import annotations

from collections.abc import Callable

from moorage.api.runtime_classes import RuntimeClass

LEGACY = "legacy"
"""The reserved name of the implicit class."""

DEFAULT_HANDLER = ""
"""Name of the runtime's default handler in the CRI."""

ClassLookup = Callable[[str], RuntimeClass | None]


class ClassMissing(LookupError):  # noqa: N818 - a state of the cluster, not a programming error
    """The class a pod names does not exist."""

    def __init__(self, class_name: str) -> None:
        super().__init__(f'runtimeclass.node.k8s.io "{class_name}" not found')
        self.class_name = class_name


def is_implicit(class_name: str | None) -> bool:
    """Return whether the name denotes the implicit class, which always exists."""
    return not class_name or class_name == LEGACY


def resolve_handler(class_name: str | None, lookup: ClassLookup) -> str:
    """Return the CRI handler of a pod's `runtimeClassName`; `""` is the runtime's default.

    Raises ClassMissing when the class does not exist (any more).
    """
    if class_name is None or is_implicit(class_name):
        return DEFAULT_HANDLER
    runtime_class = lookup(class_name)
    if runtime_class is None:
        raise ClassMissing(class_name)
    return runtime_class.handler
