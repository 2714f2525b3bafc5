"""Catalogue of standard classes: a name that means the same on every cluster, and its properties.

Source: KEP-585, "Future work": conformant class names, which upstream never specified.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from moorage.runtimeclass.conformance.properties import PROPERTIES, Property

CATALOGUE_VERSION = 1
"""Version of the catalogue: a result of another one is stale."""


class StandardClass(msgspec.Struct, frozen=True):
    """A standard class: its name, what it means, and the names of its properties."""

    name: str
    meaning: str
    properties: tuple[str, ...]


_BASE = ("runs", "own-files", "own-processes")
_NETWORKED = (*_BASE, "own-network", "memory-limit", "confined-root")

_ALL = (
    StandardClass(
        "native",
        "containers on the node's kernel",
        (*_NETWORKED, "shared-kernel"),
    ),
    StandardClass(
        "sandboxed",
        "containers on a kernel that is not the node's: in user space or in a virtual machine",
        (*_NETWORKED, "own-kernel"),
    ),
    StandardClass(
        "vm-isolated",
        "containers in a virtual machine of their own",
        (*_NETWORKED, "own-kernel", "own-machine"),
    ),
    StandardClass(
        "wasm",
        "WebAssembly programs, and no others",
        ("wasm-programs", "no-native-programs"),
    ),
    StandardClass(
        "offline",
        "containers without any network",
        (*_BASE, "no-network"),
    ),
)

STANDARD_CLASSES: dict[str, StandardClass] = {one.name: one for one in _ALL}
"""Name → standard class, in the order of reports."""


class UnknownStandardError(ValueError):
    """A name that no standard class has."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"unknown standard class {name!r}: it must be one of {', '.join(STANDARD_CLASSES)}"
        )


def standard_class(name: str) -> StandardClass:
    """Return a standard class. Raises UnknownStandardError."""
    try:
        return STANDARD_CLASSES[name]
    except KeyError:
        raise UnknownStandardError(name) from None


def properties_of(standards: Iterable[StandardClass]) -> tuple[Property, ...]:
    """Return the properties of some standard classes, each once, in the order of testing."""
    wanted = {name for standard in standards for name in standard.properties}
    return tuple(one for name, one in PROPERTIES.items() if name in wanted)
