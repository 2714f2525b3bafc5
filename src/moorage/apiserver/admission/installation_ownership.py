"""Field ownership of RuntimeInstallations: what a node agent's write may change of it.

An agent removes its entry by applying a status without it, which works only while its manager owns
the entry. So no agent may change what others own, nor fill the object with managers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from moorage.api.runtime_group import API_VERSION
from moorage.api.runtime_installations import node_manager
from moorage.apiserver.registry.kind import Obj

_Path = tuple[str, ...]
_NODES: _Path = ("f:status", "f:nodes")
_CONTAINERS = frozenset[_Path](
    [("f:status",), ("f:status", "."), _NODES, (*_NODES, ".")],
)
"""What the manager of an agent that applied no entry owns."""


def is_own_ownership(new: Obj, old: Obj, node: str) -> bool:
    """Return whether managed fields differ in those of the node's manager and entry alone.

    The node's manager may own the node's entry only. Other managers may lose that, and gain none.
    """
    after, before = _entries(new), _entries(old)
    manager = node_manager(node)
    present = {_key(entry): entry for entry in before}
    left = {_key(entry): entry for entry in after}
    if len(left) != len(after):
        return False
    others = [entry for entry in before if entry.get("manager") != manager]
    if any(_key(entry) not in left and list(_foreign(entry, node)) for entry in others):
        return False
    for key, entry in left.items():
        former = present.get(key)
        if entry == former:
            continue
        if entry.get("manager") == manager:
            is_fit = _is_of_status(entry) and not list(_foreign(entry, node))
        else:
            is_fit = former is not None and _has_only_lost(entry, former, node)
        if not is_fit:
            return False
    return True


def _entries(installation: Obj) -> list[Obj]:
    return list(installation.get("metadata", {}).get("managedFields") or ())


def _key(entry: Obj) -> tuple[object, ...]:
    return tuple(entry.get(name) for name in ("manager", "operation", "apiVersion", "subresource"))


def _is_of_status(entry: Obj) -> bool:
    return (entry.get("apiVersion"), entry.get("subresource")) == (API_VERSION, "status")


def _has_only_lost(entry: Obj, former: Obj, node: str) -> bool:
    is_same_outside = set(_foreign(entry, node)) == set(_foreign(former, node))
    return is_same_outside and set(_leaves(entry)) <= set(_leaves(former))


def _foreign(entry: Obj, node: str) -> Iterator[_Path]:
    """Yield the fields of an entry beside the node's own, and beside the containers of it."""
    own = (*_NODES, f"k:{msgspec.json.encode({'name': node}).decode()}")
    for path in _leaves(entry):
        if path[: len(own)] != own and path not in _CONTAINERS:
            yield path


def _leaves(entry: Obj) -> Iterator[_Path]:
    return _leaves_of(entry.get("fieldsV1") or {}, ())


def _leaves_of(tree: dict[str, Any], above: _Path) -> Iterator[_Path]:
    for element, inner in tree.items():
        if inner:
            yield from _leaves_of(inner, (*above, element))
        else:
            yield (*above, element)
