"""Devices of a ResourceSlice: attributes, capacity, taints, counters, nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.resourceslice.capacity import request_policy_errors
from moorage.apiserver.registry.validation.declared import (
    DeclaredError,
    list_errors,
    short_name_errors,
)
from moorage.apiserver.registry.validation.device_names import attribute_name_errors, label_errors
from moorage.apiserver.registry.validation.devices import (
    binding_errors,
    node_selector_errors,
    taint_errors,
)

_ENTRIES_MAX = 32
_VALUES_MAX = 48
_KEY_SHOWN_BYTES = 96
_VALUE_MAX_BYTES = 64
_TAINTS_MAX = 16
_CONSUMPTIONS_MAX = 2
_COUNTERS_MAX = 32
_LISTS = ("ints", "bools", "strings", "versions")
_VALUES = ("int", "bool", "string", "version", *_LISTS)
_VALUES_SHOWN = ", ".join(f"`{field}`" for field in _VALUES)
_NUMBER = "(0|[1-9][0-9]*)"
_PRERELEASE = "(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = "[0-9a-zA-Z-]+"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRERELEASE}(\.{_PRERELEASE})*)?"
    rf"(\+{_BUILD}(\.{_BUILD})*)?"
)
_NODE_FIELDS = ("nodeName", "nodeSelector", "allNodes")
_ONE_NODE_FIELD = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
    "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)


def device_errors(
    device: Obj, path: str, old: Obj | None, *, has_own_nodes: bool
) -> Iterator[FieldError]:
    """Validate a device. Capacity and taints that do not change are not looked at.

    `has_own_nodes`: each device of the slice says which nodes can use it.
    """
    yield from label_errors(device.get("name", ""), f"{path}.name")
    yield from _count_errors(device, path)
    attributes, capacity = device.get("attributes", {}), device.get("capacity", {})
    yield from _map_errors(attributes, f"{path}.attributes", _attribute_errors)
    if old is None or capacity != old.get("capacity", {}):
        is_shared = bool(device.get("allowMultipleAllocations"))
        item_errors = partial(request_policy_errors, is_shared=is_shared)
        yield from _map_errors(capacity, f"{path}.capacity", item_errors)
    yield from list_errors(
        device.get("consumesCounters", []),
        f"{path}.consumesCounters",
        _CONSUMPTIONS_MAX,
        _consumption_errors,
        key=_counter_set,
    )
    taints = device.get("taints", [])
    if old is None or taints != old.get("taints", []):
        yield from _taints_errors(taints, f"{path}.taints")
    if has_own_nodes:
        yield from _node_errors(device, path)
    elif any(field in device for field in _NODE_FIELDS):
        yield FieldError.invalid(
            path,
            None,
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if "
            "`perDeviceNodeSelection` is set to true in the ResourceSlice spec",
        )
    yield from binding_errors(device, path)


def _count_errors(device: Obj, path: str) -> Iterator[FieldError]:
    attributes = device.get("attributes", {})
    entries = len(attributes) + len(device.get("capacity", {}))
    if entries > _ENTRIES_MAX:
        yield FieldError.invalid(
            path,
            entries,
            f"the total number of attributes and capacities must not exceed {_ENTRIES_MAX}",
        )
    values = sum(
        sum(len(attribute.get(field, ())) for field in _LISTS) or 1
        for attribute in attributes.values()
    )
    if values > _VALUES_MAX:
        yield FieldError.invalid(
            path, values, f"the total number of attribute values must not exceed {_VALUES_MAX}"
        )


def _map_errors(
    items: dict[str, Obj], path: str, item_errors: Callable[[Obj, str], Iterator[FieldError]]
) -> Iterator[FieldError]:
    for name, item in items.items():
        yield from attribute_name_errors(name, path)
        yield from item_errors(item, f"{path}[{_shortened(name)}]")


def _shortened(name: str) -> str:
    """Cut the middle out of a name that is too long for a field path."""
    if len(name.encode()) <= _KEY_SHOWN_BYTES:
        return name
    kept = _KEY_SHOWN_BYTES - len("...")
    return f"{name[: (kept + 1) // 2]}...{name[len(name) - kept // 2 :]}"


def _attribute_errors(attribute: Obj, path: str) -> Iterator[FieldError]:
    if "string" in attribute:
        yield from _length_errors(attribute["string"], f"{path}.string")
    if "version" in attribute:
        if not _VERSION.fullmatch(attribute["version"]):
            yield FieldError.invalid(
                f"{path}.version",
                attribute["version"],
                "must be a string compatible with semver.org spec 2.0.0",
            )
        yield from _length_errors(attribute["version"], f"{path}.version")
    given = [field for field in _VALUES if field in attribute]
    if not given:
        yield DeclaredError.invalid(path, "", f"must specify one of: {_VALUES_SHOWN}")
    elif len(given) > 1:
        yield DeclaredError.invalid(
            path, f"{{{', '.join(given)}}}", f"must specify exactly one of: {_VALUES_SHOWN}"
        )


def _length_errors(text: str, path: str) -> Iterator[FieldError]:
    if len(text.encode()) > _VALUE_MAX_BYTES:
        yield FieldError.too_long(path, _VALUE_MAX_BYTES)


def _taints_errors(taints: list[Obj], path: str) -> Iterator[FieldError]:
    if len(taints) > _TAINTS_MAX:
        yield FieldError.too_many(path, len(taints), _TAINTS_MAX)
        return
    for index, taint in enumerate(taints):
        yield from taint_errors(taint, f"{path}[{index}]")


def _counter_set(consumption: Obj) -> str:
    return str(consumption.get("counterSet", ""))


def _consumption_errors(consumption: Obj, path: str) -> Iterator[FieldError]:
    yield from short_name_errors(_counter_set(consumption), f"{path}.counterSet")
    yield from counters_errors(consumption, path)


def counters_errors(holder: Obj, path: str) -> Iterator[FieldError]:
    """Validate the counters of a counter set, or of a device that consumes them."""
    counters, at = holder.get("counters", {}), f"{path}.counters"
    if not counters:
        yield DeclaredError.required(at)
    if len(counters) > _COUNTERS_MAX:
        yield FieldError.too_many(at, len(counters), _COUNTERS_MAX)
    for name in counters:
        for detail in names.dns_label_errors(name):
            yield DeclaredError.invalid(at, name, detail)


def _node_errors(device: Obj, path: str) -> Iterator[FieldError]:
    """Validate which nodes can use a device."""
    chosen: list[str] = []
    if device.get("nodeName"):
        chosen.append("`nodeName`")
        for detail in names.dns_subdomain_errors(device["nodeName"]):
            yield FieldError.invalid(f"{path}.nodeName", device["nodeName"], detail)
    elif "nodeName" in device:
        yield FieldError.invalid(f"{path}.nodeName", "", "must not be empty")
    if "nodeSelector" in device:
        chosen.append("`nodeSelector`")
        yield from node_selector_errors(device["nodeSelector"], f"{path}.nodeSelector")
    if device.get("allNodes"):
        chosen.append("`allNodes`")
    elif "allNodes" in device:
        yield FieldError.invalid(f"{path}.allNodes", False, "must be either unset or set to true")
    if not chosen:
        yield FieldError.required(path, _ONE_NODE_FIELD)
    elif len(chosen) > 1:
        yield FieldError.invalid(path, f"{{{', '.join(chosen)}}}", _ONE_NODE_FIELD)
