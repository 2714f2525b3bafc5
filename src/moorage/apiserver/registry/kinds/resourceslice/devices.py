"""Devices of a ResourceSlice: attributes, capacity, taints, counters, nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.api.quantity import NANO, Quantity, parse
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.declared import (
    DeclaredError,
    list_errors,
    short_name_errors,
)
from moorage.apiserver.registry.validation.devices import (
    attribute_name_errors,
    binding_errors,
    label_errors,
    node_selector_errors,
    taint_errors,
)

_OPTIONS_MAX = 10
_INT64_MAX = 2**63 - 1
_ENTRIES_MAX = 32
_VALUES_MAX = 48
_KEY_SHOWN_BYTES = 96
_VALUE_MAX_BYTES = 64
_TAINTS_MAX = 16
_CONSUMPTIONS_MAX = 2
_COUNTERS_MAX = 32
_LISTS = ("ints", "bools", "strings", "versions")
_NUMBER = "(0|[1-9][0-9]*)"
_PRERELEASE = "(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = "[0-9a-zA-Z-]+"
_NODE_FIELDS = ("nodeName", "nodeSelector", "allNodes")
_ONE_NODE_FIELD = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
    "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)

_MILLI = NANO // 1000


def request_policy_errors(capacity: Obj, path: str, *, is_shared: bool) -> Iterator[FieldError]:
    """Validate the request policy of a capacity. Only shared devices may have one."""
    policy, at = capacity.get("requestPolicy"), f"{path}.requestPolicy"
    if policy is None:
        return
    if not is_shared:
        yield FieldError.forbidden(at, "allowMultipleAllocations must be true")
        return
    limit = parse(capacity.get("value", "0"))
    kinds = [field for field in ("validValues", "validRange") if policy.get(field) is not None]
    if len(kinds) == 2:
        yield FieldError.forbidden(
            at,
            'exactly one policy can be specified, cannot specify "validValues" and "validRange" '
            "at the same time",
        )
    elif kinds and "default" not in policy:
        yield FieldError.required(f"{at}.default", f"required when {kinds[0]} is defined")
    elif kinds == ["validValues"]:
        options = [parse(option) for option in policy["validValues"]]
        yield from _option_errors(options, f"{at}.validValues", parse(policy["default"]), limit)
    elif kinds == ["validRange"]:
        yield from _range_errors(policy["validRange"], f"{at}.validRange", policy, limit)


def _option_errors(
    options: list[Quantity], path: str, default: Quantity, limit: Quantity
) -> Iterator[FieldError]:
    for index in range(1, len(options)):
        if options[index] < options[index - 1]:
            yield FieldError.invalid(
                f"{path}[{index}]", str(options[index]), "values must be sorted in ascending order"
            )
    if len(options) > _OPTIONS_MAX:
        yield FieldError.too_many(path, len(options), _OPTIONS_MAX)
        options = []
    for index, option in enumerate(options):
        if limit < option:
            yield FieldError.invalid(
                f"{path}[{index}]", str(option), f"option is larger than capacity value: {limit}"
            )
    seen: set[Quantity] = set()
    for index, option in enumerate(options):
        if option in seen:
            yield FieldError.duplicate(f"{path}[{index}]", _decimal(option))
        seen.add(option)
    if default not in seen:
        yield FieldError.invalid(
            path, str(default), "default value is not valid according to the requestPolicy"
        )


def _decimal(amount: Quantity) -> str:
    """Return an amount as Go shows the duplicate of one: `1024`, `0.500`."""
    whole, rest = divmod(abs(amount.nano), NANO)
    sign = "-" if amount.nano < 0 else ""
    digits = f"{rest:09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{sign}{whole}.{digits}" if digits else f"{sign}{whole}"


def _range_errors(
    valid_range: Obj, path: str, policy: Obj, limit: Quantity
) -> Iterator[FieldError]:
    if "min" not in valid_range:
        yield FieldError.required(f"{path}.min", "required when validRange is defined")
        return
    amounts = {"default": parse(policy["default"])}
    amounts |= {
        field: parse(valid_range[field]) for field in ("min", "max", "step") if field in valid_range
    }
    yield from _bound_errors(amounts, path, limit)
    is_fractional = any(not amount.is_whole for amount in amounts.values())
    if is_fractional:
        too_fine = [field for field, amount in amounts.items() if not _is_milli(amount)]
        for field in too_fine:
            yield FieldError.invalid(
                f"{path}.{field}",
                str(amounts[field]),
                "value cannot be represented as a milli value",
            )
        if too_fine:
            return
    if "step" in amounts:
        yield from _step_errors(amounts, path, limit, is_fractional=is_fractional)


def _is_milli(amount: Quantity) -> bool:
    return amount.nano % _MILLI == 0 and abs(amount.nano // _MILLI) <= _INT64_MAX


def _bound_errors(amounts: dict[str, Quantity], path: str, limit: Quantity) -> Iterator[FieldError]:
    default, least, most = amounts["default"], amounts["min"], amounts.get("max")
    if limit < least:
        yield FieldError.invalid(
            f"{path}.min", str(least), f"min is larger than capacity value: {limit}"
        )
    if default < least:
        yield FieldError.invalid(
            f"{path}.default", str(default), f"default is less than min: {least}"
        )
    if most is None:
        return
    if most < least:
        yield FieldError.invalid(f"{path}.max", str(least), f"min is larger than max: {most}")
    if limit < most:
        yield FieldError.invalid(
            f"{path}.max", str(most), f"max is larger than capacity value: {limit}"
        )
    if most < default:
        yield FieldError.invalid(
            f"{path}.default", str(default), f"default is more than max: {most}"
        )


def _step_errors(
    amounts: dict[str, Quantity], path: str, limit: Quantity, *, is_fractional: bool
) -> Iterator[FieldError]:
    least, step, at = amounts["min"], amounts["step"], f"{path}.step"
    if step.nano <= 0:
        yield FieldError.invalid(at, str(step), "must be greater than zero")
        return
    if limit < least + step:
        yield FieldError.invalid(
            at, str(step), f"one step {least + step} is larger than capacity value: {limit}"
        )
    negative = [field for field, amount in amounts.items() if amount.nano < 0]
    if negative and not is_fractional:
        for field in negative:
            yield FieldError.invalid(
                f"{path}.{field}", str(amounts[field]), "must be greater than or equal to 0"
            )
        return
    for field in ("default", "max"):
        amount = amounts.get(field, least)
        if (amount.nano - least.nano) % step.nano:
            yield FieldError.invalid(
                at,
                str(amount),
                f"value is not a multiple of a given step ({step}) from ({least})",
            )


_VALUES = ("int", "bool", "string", "version", *_LISTS)
_VALUES_SHOWN = ", ".join(f"`{field}`" for field in _VALUES)

_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRERELEASE}(\.{_PRERELEASE})*)?"
    rf"(\+{_BUILD}(\.{_BUILD})*)?"
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
