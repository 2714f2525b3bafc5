"""Names of custom resource definitions: which of a group are free, and which are accepted.

Source: apiextensions naming controller of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from moorage.apiserver.registry.kind import Obj

_RESOURCE_NAMES = ("plural", "singular")
_KIND_NAMES = ("kind", "listKind")
_REASONS = {
    "plural": "PluralConflict",
    "singular": "SingularConflict",
    "kind": "KindConflict",
    "listKind": "ListKindConflict",
}


class NameConflict(msgspec.Struct, frozen=True):
    """Reason and message of the condition NamesAccepted when a name is taken."""

    reason: str
    message: str


def accepted_names(definition: Obj, others: Iterable[Obj]) -> tuple[Obj, NameConflict | None]:
    """Return the accepted names of a definition, and the last conflict with `others`.

    `others` are the definitions of the same group; their accepted names are taken. A name that is
    accepted stays accepted; one in conflict keeps its earlier value.
    """
    requested: Obj = definition["spec"]["names"]
    accepted: Obj = dict(definition.get("status", {}).get("acceptedNames", {}))
    resources, kinds = _taken(others)
    conflict: NameConflict | None = None
    for fields, taken in ((_RESOURCE_NAMES, resources), (_KIND_NAMES, kinds)):
        for field in fields:
            name = requested.get(field, "")
            if name != accepted.get(field, "") and name in taken:
                conflict = NameConflict(_REASONS[field], f'"{name}" is already in use')
            else:
                accepted[field] = name
        if fields is _RESOURCE_NAMES:
            conflict = _accept_short_names(requested, accepted, resources) or conflict
    accepted |= {"categories": requested["categories"]} if "categories" in requested else {}
    if "categories" not in requested:
        accepted.pop("categories", None)
    return accepted, conflict


def _accept_short_names(requested: Obj, accepted: Obj, taken: set[str]) -> NameConflict | None:
    own = set(accepted.get("shortNames", ()))
    wanted = requested.get("shortNames", [])
    clashes = [f'"{name}" is already in use' for name in wanted if name in taken - own]
    if clashes:
        text = clashes[0] if len(clashes) == 1 else f"[{', '.join(clashes)}]"
        return NameConflict("ShortNamesConflict", text)
    accepted.pop("shortNames", None)
    if wanted:
        accepted["shortNames"] = list(wanted)
    return None


def _taken(others: Iterable[Obj]) -> tuple[set[str], set[str]]:
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        names = other.get("status", {}).get("acceptedNames", {})
        resources |= {names.get(field, "") for field in _RESOURCE_NAMES}
        resources |= set(names.get("shortNames", ()))
        kinds |= {names.get(field, "") for field in _KIND_NAMES}
    return resources - {""}, kinds - {""}
