"""The default class among several: the newest, by name among those of one second.

Source: apiserver plugins DefaultStorageClass and DefaultIngressClass of Kubernetes 1.37.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from moorage.api.meta import ObjectMeta


class DefaultableClass(Protocol):
    """A class that an annotation may make the default one."""

    @property
    def metadata(self) -> ObjectMeta: ...

    @property
    def is_default(self) -> bool: ...


C = TypeVar("C", bound=DefaultableClass)


def newest_default(classes: Iterable[C]) -> C | None:
    """Return the default class that objects get which name none; None without one."""
    defaults = [candidate for candidate in classes if candidate.is_default]
    by_name = sorted(defaults, key=lambda one: one.metadata.name)
    return max(by_name, key=lambda one: one.metadata.creation_timestamp or "", default=None)
