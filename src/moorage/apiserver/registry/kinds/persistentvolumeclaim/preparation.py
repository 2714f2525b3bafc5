"""Preparation of PersistentVolumeClaims: their status, and where their content comes from.

The two fields for a data source, of which `dataSource` is the older one, are kept equal. Source:
`pkg/api/persistentvolumeclaim` of Kubernetes 1.36, KEP-1495.
"""

from __future__ import annotations

from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.preparation import keep_status

_LEGACY_SOURCES = frozenset((
    ("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"),
))  # fmt: skip
"""Group and kind of what `dataSource` alone may name."""


def prepare_claim(claim: Obj) -> None:
    """Reset the status of a new claim, and complete its data sources."""
    claim["status"] = {"phase": "Pending"}
    _prepare_sources(claim.get("spec", {}), {})


def prepare_update(new: Obj, old: Obj) -> None:
    """Keep the status, and complete the data sources."""
    keep_status(new, old)
    _prepare_sources(new.get("spec", {}), old.get("spec", {}))


def _prepare_sources(spec: Obj, was: Obj) -> None:
    reference = spec.get("dataSourceRef", {})
    if reference.get("namespace") and "dataSourceRef" not in was:
        # Sources in other namespaces are an alpha feature.
        del spec["dataSourceRef"]
    if not was.keys() & {"dataSource", "dataSourceRef"} and "dataSourceRef" not in spec:
        _drop_unknown_source(spec)
    complete_sources(spec)


def _drop_unknown_source(spec: Obj) -> None:
    """Drop what `dataSource` never could name; for that there is `dataSourceRef`."""
    source = spec.get("dataSource", {})
    if (source.get("apiGroup", ""), source.get("kind", "")) not in _LEGACY_SOURCES:
        spec.pop("dataSource", None)


def complete_sources(spec: Obj) -> None:
    """Copy one of the two data sources to the other, where only one is set."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        spec["dataSourceRef"] = dict(source)
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = {
            field: value for field, value in reference.items() if field != "namespace"
        }
