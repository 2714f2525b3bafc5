"""Feed of a class index: takes over the changes of classes, nodes and profiles from informers.

An object is given before and after its change; None before it is there, or after it has gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from moorage.api.logs import Log
from moorage.api.meta import Object
from moorage.api.runtime_group import RuntimeClass, RuntimeProfile
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.node_sets import NodeFacts

T = TypeVar("T", bound=Object)

log = Log(__name__)


class IndexFeed:
    """Handlers of informers that keep an index current."""

    def __init__(self, index: ClassIndex) -> None:
        self._index = index

    def class_changed(self, before: RuntimeClass | None, after: RuntimeClass | None) -> None:
        """Take over a class."""
        if after is not None:
            _put(self._index.put_class, after)
        elif before is not None:
            self._index.remove_class(before.metadata.name)

    def node_changed(self, before: NodeFacts | None, after: NodeFacts | None) -> None:
        """Take over a node."""
        if after is not None:
            _put(self._index.put_node, after)
        elif before is not None:
            self._index.remove_node(before.metadata.name)

    def profile_changed(self, before: RuntimeProfile | None, after: RuntimeProfile | None) -> None:
        """Take over a profile."""
        if after is not None:
            self._index.put_profile(after)
        elif before is not None:
            self._index.remove_profile(before.metadata.name)


def _put(put: Callable[[T], object], obj: T) -> None:
    """Record an object; one with amounts that are none is logged and counts as it was before."""
    try:
        put(obj)
    except ValueError as error:
        log.warning("object cannot be read", kind=type(obj).__name__, error=error)
