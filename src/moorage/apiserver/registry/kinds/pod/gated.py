"""Gated pods: how an update may change where they can go, which is only to fewer nodes.

Source: KEP-3838; core validation `validateNodeSelectorMutation`, `validateNodeAffinityMutation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = "nodeSelectorTerms"
_SELECTOR = "spec.nodeSelector"
_AFFINITY = "spec.affinity.nodeAffinity"
_PARTS = ("matchExpressions", "matchFields")

Json = Mapping[str, Any]


def gated_errors(new: Json, old: Json) -> list[FieldError]:
    """Return the errors of node selector and node affinity of a pod that had gates."""
    errors = []
    before, after = old.get("nodeSelector", {}), new.get("nodeSelector", {})
    if not before.items() <= after.items():
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.append(FieldError.invalid(_SELECTOR, after, text))
    return errors + _affinity_errors(_terms(new), _terms(old))


def with_placing_of(allowed: Obj, new: Json) -> None:
    """Give a specification the node selector and node affinity of another, in place."""
    if "nodeSelector" in new:
        allowed["nodeSelector"] = new["nodeSelector"]
    else:
        allowed.pop("nodeSelector", None)
    theirs = new.get("affinity")
    affinity = {**allowed.get("affinity", {})}
    affinity.pop("nodeAffinity", None)
    if theirs is not None and "nodeAffinity" in theirs:
        affinity["nodeAffinity"] = theirs["nodeAffinity"]
    if affinity or theirs is not None:
        allowed["affinity"] = affinity
    else:
        allowed.pop("affinity", None)


def _terms(spec: Json) -> list[Json]:
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get(_REQUIRED, {})
    terms: list[Json] = required.get(_TERMS, [])
    return terms


def _affinity_errors(new: list[Json], old: list[Json]) -> list[FieldError]:
    path = f"{_AFFINITY}.{_REQUIRED}.{_TERMS}"
    if old and len(new) != len(old):
        text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [FieldError.invalid(path, new, text)]
    return [
        FieldError.invalid(
            f"{path}[{index}]",
            after,
            "only additions are allowed (no mutations or deletions)",
        )
        for index, (before, after) in enumerate(zip(old, new, strict=False))
        if not _has_only_additions(after, before)
    ]


def _has_only_additions(new: Json, old: Json) -> bool:
    """Return whether a term keeps what it had, in order. An empty one, which matches no node, stays
    empty."""
    if not any(old.get(part) for part in _PARTS):
        return not any(new.get(part) for part in _PARTS)
    return all(new.get(part, [])[: len(old.get(part, []))] == old.get(part, []) for part in _PARTS)
