"""Warnings about StatefulSets."""

from __future__ import annotations

from moorage.api import quantity
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.warnings import warn_workload


def warn_about_stateful_set(stateful_set: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about the template, the volume claims and the history limit."""
    spec, warnings = stateful_set["spec"], warn_workload(stateful_set, old)
    # Upstream's paths differ by verb.
    inner = "" if old is None else ".Spec"
    for index, claim in enumerate(spec.get("volumeClaimTemplates", ())):
        path = f"spec.volumeClaimTemplates[{index}]{inner}.resources"
        warnings += _fraction_warnings(claim.get("spec", {}).get("resources", {}), path)
    if spec.get("revisionHistoryLimit", 0) < 0:
        warnings.append(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value "
            ">= 0 is recommended"
        )
    return warnings


def _fraction_warnings(resources: Obj, path: str) -> list[str]:
    return [
        f'{path}.{side}[storage]: fractional byte value "{resources[side]["storage"]}" is invalid, '
        "must be an integer"
        for side in ("requests", "limits")
        if not quantity.parse(resources.get(side, {}).get("storage", "0")).is_whole
    ]
