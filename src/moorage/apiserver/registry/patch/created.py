"""Fields of new objects: what their creator owns.

Objects made from one template differ in their metadata only, so the fields of the rest are
remembered by its content. Hot path: a pod like an earlier one in 15 µs (bench/requests.py).
"""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.apiserver.registry.patch.compare import changes
from moorage.apiserver.registry.patch.fieldset import EMPTY, Tree, in_order
from moorage.apiserver.registry.patch.managed import Change, ManagedFields, owned_fields

_MOST_REMEMBERED = 256
_MOST_BYTES = 2048
_METADATA = "metadata"

_encode = msgspec.json.encode


class CreatedFields:
    """Returns the entries of new objects; remembers the fields of 256 times 2 KiB of JSON at most.

    Trees are shared between objects; they are never changed in place.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, bool, bytes], Tree] = {}

    def forget(self) -> None:
        """Forget all: a type has changed."""
        self._known.clear()

    def entries(self, change: Change, obj: dict[str, Any]) -> ManagedFields:
        """Return the entries of a new object, which has no managedFields, in upstream's order."""
        rest = {name: value for name, value in obj.items() if name != _METADATA}
        fields = dict(self._of_rest(change, rest))
        if _METADATA in obj:
            fields |= in_order(_fields(change, {_METADATA: obj[_METADATA]}))
        if not fields:
            return []
        return [change.manager.entry(dict(sorted(fields.items())), change.now)]

    def _of_rest(self, change: Change, rest: dict[str, Any]) -> Tree:
        if not rest:
            return EMPTY
        key = (change.type_name, bool(change.ignored), _encode(rest))
        fields = self._known.get(key)
        if fields is None:
            fields = in_order(_fields(change, rest))
            if len(key[2]) <= _MOST_BYTES:
                if len(self._known) >= _MOST_REMEMBERED:
                    self._known.clear()
                self._known[key] = fields
        return fields


def _fields(change: Change, obj: dict[str, Any]) -> Tree:
    changed, _ = changes(change.merge_schema, change.type_name, {}, obj)
    return owned_fields(changed, change.ignored)
