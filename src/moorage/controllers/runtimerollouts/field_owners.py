"""Owners of a template's class: a move leaves the field to the manager that writes the template.

A server-side apply of another manager conflicts with the last manager that changed a field. If a
rollout stayed the owner of `runtimeClassName`, each later change of it by Helm 4, a GitOps tool or
`kubectl apply --server-side` would be refused. So the field goes back to the managers that own the
template's containers; the annotations of the rollout stay its own. Source: "Server-Side Apply",
`metadata.managedFields`, which a client may write.
"""

from __future__ import annotations

from typing import Any

_FIELD = "f:runtimeClassName"
_SIBLING = "f:containers"
_TEMPLATE = ("f:spec", "f:template", "f:spec")
_JOB_TEMPLATE = ("f:spec", "f:jobTemplate", "f:spec", "f:template", "f:spec")

Entry = dict[str, Any]
"""An entry of `managedFields`."""


def handed_back(entries: list[Entry], kind: str, manager: str) -> list[Entry] | None:
    """Return entries in which a manager gives the class of a template to those who write it.

    None if the manager does not own it, or there is no one to give it to: the field is then the
    only trace of who set it.
    """
    path = _JOB_TEMPLATE if kind == "CronJob" else _TEMPLATE
    own = [
        entry for entry in entries if entry.get("manager") == manager and _owns(entry, path, _FIELD)
    ]
    writers = [
        entry
        for entry in entries
        if entry.get("manager") != manager
        and not entry.get("subresource")
        and _owns(entry, path, _SIBLING)
    ]
    applying = [entry for entry in writers if entry.get("operation") == "Apply"]
    receiving = applying or writers
    if not own or not receiving:
        return None
    changed = []
    for entry in entries:
        if entry in own:
            fields = _without(entry["fieldsV1"], (*path, _FIELD))
            if fields:
                changed.append({**entry, "fieldsV1": fields})
        elif entry in receiving:
            changed.append({**entry, "fieldsV1": _with(entry["fieldsV1"], (*path, _FIELD))})
        else:
            changed.append(entry)
    return changed


def _owns(entry: Entry, path: tuple[str, ...], name: str) -> bool:
    fields = entry.get("fieldsV1")
    for step in path:
        fields = fields.get(step) if isinstance(fields, dict) else None
    return isinstance(fields, dict) and name in fields


def _without(fields: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return fields without the one at a path, and without what is empty then."""
    first, *rest = path
    kept = {key: value for key, value in fields.items() if key != first}
    if rest and (below := _without(fields[first], tuple(rest))):
        kept[first] = below
    return kept


def _with(fields: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    first, *rest = path
    below = _with(fields.get(first, {}), tuple(rest)) if rest else {}
    return {**fields, first: below}
