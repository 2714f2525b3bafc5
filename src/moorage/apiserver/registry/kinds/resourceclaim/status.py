"""ResourceClaim status: allocation, reservations, and what drivers report of devices."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.resourceclaim.spec import (
    ITEMS_MAX,
    one_reference_errors,
    reference_errors,
    request_names,
)
from moorage.apiserver.registry.preparation import keep_all_but_status
from moorage.apiserver.registry.validation.conditions import condition_errors
from moorage.apiserver.registry.validation.declared import (
    DeclaredError,
    enum_errors,
    in_order,
    itself,
    list_errors,
)
from moorage.apiserver.registry.validation.devices import (
    binding_errors,
    configuration_errors,
    declared_driver_errors,
    declared_pool_errors,
    default_parameters,
    default_tolerations,
    driver_errors,
    label_errors,
    node_selector_errors,
    pool_errors,
    raw_errors,
    share_errors,
    toleration_errors,
)

_CONSUMERS_MAX = 256
_CONFIGURATIONS_MAX = 2 * ITEMS_MAX
_CONDITIONS_MAX = 8
_DATA_MAX_BYTES = 10 * 1024
_ADDRESSES_MAX = 16
_TEXT_MAX_BYTES = {"interfaceName": 256, "hardwareAddress": 128}
_SOURCES = ("FromClaim", "FromClass")
_ID = (("Driver", "driver"), ("Pool", "pool"), ("Device", "device"), ("ShareID", "shareID"))
"""What identifies an allocated device, under the names of Go and of JSON."""


def default_allocation(claim: Obj) -> None:
    """Set the API defaults of what was allocated to a ResourceClaim."""
    for result in _results(claim):
        default_tolerations(result)
    allocation = claim.get("status", {}).get("allocation", {})
    default_parameters(allocation.get("devices", {}).get("config", []))


def prepare_resource_claim_status(new: Obj, old: Obj) -> None:
    """Keep everything but the status; drop reports on devices no longer allocated."""
    keep_all_but_status(new, old)
    if not any(result.get("skipNodeOperations") for result in _results(old)):
        for result in _results(new):
            result.pop("skipNodeOperations", None)
    status = new.get("status", {})
    gone = {_device(result) for result in _results(old)} - {
        _device(result) for result in _results(new)
    }
    devices = [device for device in status.get("devices", ()) if _device(device) not in gone]
    if devices:
        status["devices"] = devices
    else:
        status.pop("devices", None)


def _results(claim: Obj) -> list[Obj]:
    """Return the devices that are allocated to a claim."""
    allocation: Obj = claim.get("status", {}).get("allocation", {})
    results: list[Obj] = allocation.get("devices", {}).get("results", [])
    return results


def _device(holder: Obj) -> tuple[str, ...]:
    """Return the identity of an allocated device, or of the share of one."""
    return tuple(holder.get(field, "") for _, field in _ID)


def validate_resource_claim_status(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of a status update of a ResourceClaim."""
    allocation = list(_allocation_change_errors(new, old))
    rest = list(_report_errors(new, old))
    declared = [error for error in allocation if isinstance(error, DeclaredError)]
    handwritten = [error for error in allocation if not isinstance(error, DeclaredError)]
    # The allocation's rules are the last handwritten ones, and the first declared ones.
    return in_order([*declared, *rest, *handwritten])


def _allocation_change_errors(new: Obj, old: Obj) -> Iterator[FieldError]:
    allocation = new.get("status", {}).get("allocation")
    before = old.get("status", {}).get("allocation")
    path = "status.allocation"
    if allocation is None or allocation == before:
        return
    if before is not None:
        yield DeclaredError.invalid(path, None, "field cannot be modified once set")
    else:
        yield from _allocation_errors(allocation, path, request_names(new.get("spec", {})))


def _allocation_errors(allocation: Obj, path: str, known: set[str]) -> Iterator[FieldError]:
    devices, at = allocation.get("devices", {}), f"{path}.devices"

    def result_errors(result: Obj, path: str) -> Iterator[FieldError]:
        yield from one_reference_errors(result.get("request", ""), f"{path}.request", known)
        yield from _result_errors(result, path)

    def allocated_configuration_errors(configuration: Obj, path: str) -> Iterator[FieldError]:
        yield from enum_errors(configuration.get("source", ""), f"{path}.source", _SOURCES)
        yield from reference_errors(configuration, path, known)
        yield from configuration_errors(configuration, path)

    yield from list_errors(devices.get("results", []), f"{at}.results", ITEMS_MAX, result_errors)
    yield from list_errors(
        devices.get("config", []),
        f"{at}.config",
        _CONFIGURATIONS_MAX,
        allocated_configuration_errors,
    )
    if "nodeSelector" in allocation:
        yield from node_selector_errors(allocation["nodeSelector"], f"{path}.nodeSelector")


def _result_errors(result: Obj, path: str) -> Iterator[FieldError]:
    yield from declared_driver_errors(result.get("driver", ""), f"{path}.driver")
    yield from declared_pool_errors(result.get("pool", ""), f"{path}.pool")
    yield from label_errors(result.get("device", ""), f"{path}.device")
    yield from binding_errors(result, path)
    yield from toleration_errors(result, path)
    yield from share_errors(result, path)


def _report_errors(new: Obj, old: Obj) -> Iterator[FieldError]:
    """Validate consumers and what drivers report of devices."""
    status = new.get("status", {})
    consumers = status.get("reservedFor", [])
    yield from list_errors(
        consumers, "status.reservedFor", _CONSUMERS_MAX, _consumer_errors, key=_uid
    )
    allocated = {_device(result) for result in _results(new)}

    def device_errors(device: Obj, path: str) -> Iterator[FieldError]:
        return _device_errors(device, path, allocated)

    devices = status.get("devices", [])
    yield from list_errors(devices, "status.devices", None, device_errors, key=_device)
    if consumers and "allocation" not in status:
        yield FieldError.forbidden(
            "status.reservedFor", "may not be specified when `allocated` is not set"
        )
    elif "deletionTimestamp" in new["metadata"]:
        before = old.get("status", {}).get("reservedFor", [])
        if not _references(consumers) <= _references(before):
            yield FieldError.forbidden(
                "status.reservedFor",
                "new entries may not be added while `deallocationRequested` or "
                "`deletionTimestamp` are set",
            )


def _references(consumers: list[Obj]) -> set[frozenset[tuple[str, str]]]:
    return {frozenset(consumer.items()) for consumer in consumers}


def _uid(consumer: Obj) -> str:
    return str(consumer.get("uid", ""))


def _consumer_errors(consumer: Obj, path: str) -> Iterator[FieldError]:
    for field in ("resource", "name", "uid"):
        if not consumer.get(field):
            yield FieldError.required(f"{path}.{field}")


def _device_errors(device: Obj, path: str, allocated: set[tuple[str, ...]]) -> Iterator[FieldError]:
    yield from driver_errors(device.get("driver", ""), f"{path}.driver")
    yield from pool_errors(device.get("pool", ""), f"{path}.pool")
    yield from label_errors(device.get("device", ""), f"{path}.device")
    yield from share_errors(device, path)
    if _device(device) not in allocated:
        shown = {name: device.get(field, "") for name, field in _ID}
        yield FieldError.invalid(path, shown, "must be an allocated device in the claim")
    conditions, at = device.get("conditions", []), f"{path}.conditions"
    if len(conditions) > _CONDITIONS_MAX:
        yield FieldError.too_many(at, len(conditions), _CONDITIONS_MAX)
    yield from condition_errors(conditions, at)
    if "data" in device:
        yield from raw_errors(device["data"], f"{path}.data", _DATA_MAX_BYTES)
    if "networkData" in device:
        yield from _network_errors(device["networkData"], f"{path}.networkData")


def _network_errors(network: Obj, path: str) -> Iterator[FieldError]:
    yield from _text_errors(network, path, "interfaceName")
    yield from list_errors(
        network.get("ips", []), f"{path}.ips", _ADDRESSES_MAX, _address_errors, key=itself
    )
    yield from _text_errors(network, path, "hardwareAddress")


def _text_errors(network: Obj, path: str, field: str) -> Iterator[FieldError]:
    limit = _TEXT_MAX_BYTES[field]
    if len(network.get(field, "").encode()) > limit:
        yield DeclaredError.too_long(f"{path}.{field}", limit)


def _address_errors(address: str, path: str) -> Iterator[FieldError]:
    """Validate an interface's address: `10.9.8.7/24`, in its canonical form."""
    try:
        interface = ipaddress.ip_interface(address if "/" in address else "")
    except ValueError:
        yield FieldError.invalid(
            path,
            address,
            "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)",
        )
        return
    canonical = _canonical(interface)
    if address != canonical:
        yield FieldError.invalid(path, address, f'must be in canonical form ("{canonical}")')


def _canonical(interface: ipaddress.IPv4Interface | ipaddress.IPv6Interface) -> str:
    mapped = getattr(interface.ip, "ipv4_mapped", None)
    if mapped is not None and interface.network.prefixlen > 32:
        # Go reads an IPv4-mapped address as the IPv4 address.
        return f"{mapped}/{interface.network.prefixlen - 96}"
    return f"{mapped or interface.ip}/{interface.network.prefixlen}"
