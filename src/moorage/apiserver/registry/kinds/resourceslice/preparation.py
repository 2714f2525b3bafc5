"""ResourceSlice preparation: fields of disabled features, and the time of new taints.

A taint that an update adds without `timeAdded` stays without it: a strategy has no clock.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.apiserver.registry.kind import Obj

_LISTS = ("bools", "ints", "strings", "versions")
_SPEC_FIELDS = ("partitionTypeAttribute", "skipNodeOperations")


def prepare_resource_slice(resource_slice: Obj) -> None:
    """Drop what is disabled; date the taints of a new ResourceSlice."""
    _drop_disabled(resource_slice, {})
    created = resource_slice["metadata"].get("creationTimestamp")
    for device in _devices(resource_slice):
        for taint in device.get("taints", ()) if created else ():
            taint.setdefault("timeAdded", created)


def prepare_resource_slice_update(new: Obj, old: Obj) -> None:
    """Drop what is disabled and not in use already."""
    _drop_disabled(new, old)


def _drop_disabled(new: Obj, old: Obj) -> None:
    spec, old_spec = new.get("spec", {}), old.get("spec", {})
    for field in _SPEC_FIELDS:
        if not old_spec.get(field):
            spec.pop(field, None)
    _drop_unless_used(_consumptions(new), _consumptions(old), ("compatibilityGroups",))
    _drop_unless_used(_devices(new), _devices(old), ("nodeAllocatableResources",))
    _drop_unless_used(_attributes(new), _attributes(old), _LISTS)


def _drop_unless_used(new: Iterator[Obj], old: Iterator[Obj], fields: tuple[str, ...]) -> None:
    if any(field in item for item in old for field in fields):
        return
    for item in new:
        for field in fields:
            item.pop(field, None)


def _devices(resource_slice: Obj) -> Iterator[Obj]:
    yield from resource_slice.get("spec", {}).get("devices", ())


def _consumptions(resource_slice: Obj) -> Iterator[Obj]:
    for device in _devices(resource_slice):
        yield from device.get("consumesCounters", ())


def _attributes(resource_slice: Obj) -> Iterator[Obj]:
    for device in _devices(resource_slice):
        yield from device.get("attributes", {}).values()
