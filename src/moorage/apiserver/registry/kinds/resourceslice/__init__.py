"""ResourceSlices. Source: resource validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    SelectableField,
    Served,
    Strategy,
    get_spec,
)
from moorage.apiserver.registry.kinds.resourceslice.devices import counters_errors, device_errors
from moorage.apiserver.registry.validation.declared import in_order, list_errors, short_name_errors
from moorage.apiserver.registry.validation.devices import (
    driver_errors,
    node_selector_errors,
    pool_errors,
)
from moorage.apiserver.registry.validation.go_shapes import Shape, go_struct

_LISTS = ("bools", "ints", "strings", "versions")
_SPEC_FIELDS = ("partitionTypeAttribute", "skipNodeOperations")
_DEVICES_MAX = 128
_ADVANCED_DEVICES_MAX = 64
"""The limit if a device has taints or consumes counters."""
_COUNTER_SETS_MAX = 8
_ONE_SELECTION = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)
_IMMUTABLE = (("pool", "name"), ("driver",), ("nodeName",))
_TERM: Shape = (
    ("matchExpressions", "MatchExpressions", None),
    ("matchFields", "MatchFields", None),
)
_EXPRESSION: Shape = (("key", "Key", ""), ("operator", "Operator", ""), ("values", "Values", None))
_TYPES = "io.k8s.api.resource.v1"


def prepare_resource_slice(resource_slice: Obj) -> None:
    """Drop what is disabled; date the taints of a new ResourceSlice."""
    prepare_resource_slice_update(resource_slice, {})
    created = resource_slice["metadata"].get("creationTimestamp")
    for device in _devices(resource_slice):
        for taint in device.get("taints", ()) if created else ():
            taint.setdefault("timeAdded", created)


def prepare_resource_slice_update(new: Obj, old: Obj) -> None:
    """Drop what is disabled and not in use already."""
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


def validate_resource_slice(resource_slice: Obj) -> list[FieldError]:
    """Return the errors of a new ResourceSlice."""
    return in_order(_spec_errors(resource_slice.get("spec", {}), None))


def validate_resource_slice_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a ResourceSlice."""
    return in_order(_spec_errors(new.get("spec", {}), old.get("spec", {})))


def _spec_errors(spec: Obj, old: Obj | None) -> Iterator[FieldError]:
    yield from driver_errors(spec.get("driver", ""), "spec.driver")
    yield from _pool_errors(spec.get("pool", {}))
    for steps in _IMMUTABLE if old is not None else ():
        value = _at(spec, steps)
        if value != _at(old, steps):
            yield FieldError.invalid(f"spec.{'.'.join(steps)}", value, "field is immutable")
    yield from _node_errors(spec)
    if spec.get("sharedCounters") and spec.get("devices"):
        yield FieldError.invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    yield from _devices_errors(spec, old or {})
    yield from list_errors(
        spec.get("sharedCounters", []),
        "spec.sharedCounters",
        _COUNTER_SETS_MAX,
        _counter_set_errors,
        key=_name,
    )


def _at(spec: Obj | None, steps: tuple[str, ...]) -> object:
    value: object = spec
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _name(named: Obj) -> str:
    return str(named.get("name", ""))


def _pool_errors(pool: Obj) -> Iterator[FieldError]:
    yield from pool_errors(_name(pool), "spec.pool.name")
    count, generation = pool.get("resourceSliceCount", 0), pool.get("generation", 0)
    if count <= 0:
        yield FieldError.invalid("spec.pool.resourceSliceCount", count, "must be greater than zero")
    if generation < 0:
        yield FieldError.invalid(
            "spec.pool.generation", generation, "must be greater than or equal to zero"
        )


def _node_errors(spec: Obj) -> Iterator[FieldError]:
    """Validate the choice of nodes that can use the devices."""
    chosen: list[str] = []
    if spec.get("nodeName") == "":
        yield FieldError.invalid(
            "spec.nodeName", "", "must be either unset or set to a non-empty string"
        )
    elif "nodeName" in spec:
        chosen.append("`nodeName`")
        for detail in names.dns_subdomain_errors(spec["nodeName"]):
            yield FieldError.invalid("spec.nodeName", spec["nodeName"], detail)
    if "nodeSelector" in spec:
        chosen.append("`nodeSelector`")
        yield from node_selector_errors(spec["nodeSelector"], "spec.nodeSelector")
        terms = spec["nodeSelector"].get("nodeSelectorTerms", [])
        if len(terms) != 1:
            yield FieldError.invalid(
                "spec.nodeSelector.nodeSelectorTerms",
                [_go_term(term) for term in terms] or None,
                "must have exactly one node selector term",
            )
    for field in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(field):
            chosen.append(f"`{field}`")
        elif field in spec:
            yield FieldError.invalid(f"spec.{field}", False, "must be either unset or set to true")
    if not chosen:
        yield FieldError.required("spec", _ONE_SELECTION)
    elif len(chosen) > 1:
        yield FieldError.invalid(
            "spec",
            f"{{{', '.join(chosen)}}}",
            f"{_ONE_SELECTION}, but multiple fields are set",
        )


def _go_term(term: Obj) -> Obj:
    shown = go_struct(term, _TERM)
    for name, expressions in shown.items():
        if expressions is not None:
            shown[name] = [go_struct(expression, _EXPRESSION) for expression in expressions]
    return shown


def _devices_errors(spec: Obj, old: Obj) -> Iterator[FieldError]:
    devices = spec.get("devices", [])
    is_advanced = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    limit = _ADVANCED_DEVICES_MAX if is_advanced else _DEVICES_MAX
    if len(devices) > limit:
        yield FieldError.too_many("spec.devices", len(devices), limit)
        return
    has_own_nodes = bool(spec.get("perDeviceNodeSelection"))
    before = {_name(device): device for device in reversed(old.get("devices", []))}
    for index, device in enumerate(devices):
        path = f"spec.devices[{index}]"
        yield from device_errors(
            device, path, before.get(_name(device)), has_own_nodes=has_own_nodes
        )
    seen: set[str] = set()
    for index, device in enumerate(devices):
        if _name(device) in seen:
            yield FieldError.duplicate(f"spec.devices[{index}]", _name(device))
        seen.add(_name(device))


def _counter_set_errors(counter_set: Obj, path: str) -> Iterator[FieldError]:
    yield from short_name_errors(_name(counter_set), f"{path}.name")
    yield from counters_errors(counter_set, path)


def warn_resource_slice(new: Obj, old: Obj | None) -> list[str]:
    """Warn about a driver's name that is not in lower case."""
    del old
    driver = new.get("spec", {}).get("driver", "")
    if driver == driver.lower():
        return []
    return [
        f'spec.driver: driver names should be lowercase; "{driver}" contains uppercase characters'
    ]


RESOURCE_SLICE = Kind(
    name="ResourceSlice",
    plural="resourceslices",
    served=(Served("resource.k8s.io", "v1", f"{_TYPES}.ResourceSlice"),),
    is_namespaced=False,
    strategy=Strategy(
        prepare_create=prepare_resource_slice,
        prepare_update=prepare_resource_slice_update,
        validate=validate_resource_slice,
        validate_update=validate_resource_slice_update,
        warn=warn_resource_slice,
        spec_of=get_spec,
        returns_deleted=True,
    ),
    printer=printer(
        NAME,
        column("Node", "spec.nodeName", of=f"{_TYPES}.ResourceSliceSpec"),
        column("Driver", "spec.driver", of=f"{_TYPES}.ResourceSliceSpec"),
        column("Pool", "spec.pool.name", of=f"{_TYPES}.ResourcePool"),
        AGE,
    ),
    selectable=(
        SelectableField("spec.nodeName", ("spec", "nodeName")),
        SelectableField("spec.driver", ("spec", "driver")),
        SelectableField("spec.pool.name", ("spec", "pool", "name")),
    ),
)
