"""Call costs: what a call of one of Kubernetes' own functions costs, by the values it is given.

These functions are charged for where they are called. What the CEL library's own functions cost
is counted by the expression (`counted.py`). Source: apiserver `cel/library/cost.go` (`CallCost`) of
Kubernetes 1.36.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from ipaddress import ip_interface
from typing import Any

from moorage.apiserver.cel.library.meter import charge

CHECK = 350_000
"""An authorization check: an expression may make two."""

_CHAR = 0.1
_PATTERN_CHAR = 0.25
_SELECTOR_PART = 0.5
_LIST, _STRUCT = 10, 40
_RENAMED = "kubernetes_"
_FORMAT_PATTERNS = {
    "dns1123Subdomain": 60, "dns1123SubdomainPrefix": 60, "qualifiedName": 60, "labelValue": 40,
    "uri": 1103, "uuid": 70, "byte": 84, "date": 71, "datetime": 71,
}  # fmt: skip
_FORMAT_PATTERN = 30

_Cost = Callable[..., int]


def metered(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that charges for each call. `name` is that in expressions."""
    cost = _COSTS.get(name.replace(_RENAMED, ""))

    @functools.wraps(call)
    def charged(*arguments: Any) -> Any:
        charge(1 if cost is None else cost(*arguments))
        return call(*arguments)

    return charged


def scaled(number: float, factor: float) -> int:
    """Return a number times a factor, rounded up."""
    return math.ceil(number * factor)


def matching(text: int, pattern: int) -> int:
    """Return the cost of a search for a regular expression, by the lengths of both."""
    return scaled(text + 1, _CHAR) * scaled(pattern, _PATTERN_CHAR)


def traversal(value: Any) -> int:
    """Return the cost of a walk over a value and all that it contains."""
    match value:
        case str():
            return int(len(value.encode()) * _CHAR)
        case bytes() | bytearray():
            return int(len(value) * _CHAR)
        case list():
            return sum(map(traversal, value))
        case Mapping():
            return sum(traversal(key) + traversal(item) for key, item in value.items())
    return 1


def _reading(factor: float) -> _Cost:
    return lambda text, *_: scaled(len(text), factor)


def _traversing(value: Any, *_: Any) -> int:
    return traversal(value)


def _ip(value: Any) -> int:
    return scaled(len(value), _CHAR) if isinstance(value, str) else 1


def _searching(text: str, pattern: str, *_: Any) -> int:
    return matching(len(text), len(pattern))


def _validating(kind: Any, text: str) -> int:
    return matching(len(text), _FORMAT_PATTERNS.get(kind.text, _FORMAT_PATTERN))


def _selecting(_: Any, selector: str) -> int:
    requirements = scaled(len(selector), _SELECTOR_PART)
    return _LIST + scaled(len(selector), _CHAR) + requirements * (_LIST + _STRUCT)


def _address_bytes(network: Any) -> int:
    return len(ip_interface(network.text).packed)


def _text(value: Any) -> int:
    return scaled(len(value), _CHAR) if isinstance(value, str) else 0


def _containing_address(network: Any, address: Any) -> int:
    return scaled(2 * _address_bytes(network), _CHAR) + _text(address)


def _containing_network(network: Any, other: Any) -> int:
    own = _address_bytes(network)
    return scaled(2 * own, _CHAR) + scaled(own, _CHAR) + 1 + _text(other)


_COSTS: dict[str, _Cost] = {
    "check": lambda *_: CHECK,
    **dict.fromkeys(("fieldSelector", "labelSelector"), _selecting),
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _traversing),
    **dict.fromkeys(
        ("url", "jsonpatch.escapeKey", "cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver",
         "isSemver"),
        _reading(_CHAR),
    ),
    "ip": _ip,
    "ip.isCanonical": _reading(2 * _CHAR),
    **dict.fromkeys(("find", "findAll"), _searching),
    "validate": _validating,
    "containsIP": _containing_address,
    "containsCIDR": _containing_network,
}  # fmt: skip
"""Functions whose calls do not cost 1."""
