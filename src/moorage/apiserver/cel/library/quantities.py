"""Quantities: `quantity("1.5Gi")`. Source: API docs "Kubernetes quantity library".

A value is kept as its billionths, so that `1000m` and `1` are equal.
"""

from __future__ import annotations

from typing import Any

from moorage.api.quantity import NANO, parse
from moorage.apiserver.cel.library import semver
from moorage.apiserver.cel.library.declaring import Signature, Type, function, holds, method
from moorage.apiserver.cel.library.opaque import QUANTITY

_INT64 = range(-(2**63), 2**63)


def functions() -> list[Signature]:
    """Return the signatures of the library."""
    quantity = QUANTITY.cel
    return [
        function("quantity", [Type.STRING], quantity, lambda text: _value(_nano_of(text))),
        function("isQuantity", [Type.STRING], Type.BOOL, holds(_nano_of)),
        method("isInteger", [quantity], Type.BOOL, lambda value: _is_integer(_nano(value))),
        method("asInteger", [quantity], Type.INT, _as_integer),
        method("asApproximateFloat", [quantity], Type.DOUBLE, lambda value: _nano(value) / NANO),
        method("sign", [quantity], Type.INT, lambda value: _sign(_nano(value))),
        *_arithmetic("add", 1),
        *_arithmetic("sub", -1),
        method("isLessThan", [quantity, quantity], Type.BOOL, lambda a, b: _compare(a, b) < 0),
        method("isGreaterThan", [quantity, quantity], Type.BOOL, lambda a, b: _compare(a, b) > 0),
        method("compareTo", [quantity, quantity], Type.INT, _compare),
    ]


def _arithmetic(name: str, sign: int) -> list[Signature]:
    quantity = QUANTITY.cel
    return [
        method(
            name, [quantity, quantity], quantity, lambda a, b: _value(_nano(a) + sign * _nano(b))
        ),
        method(
            name, [quantity, Type.INT], quantity, lambda a, b: _value(_nano(a) + sign * b * NANO)
        ),
    ]


def _nano_of(text: str) -> int:
    return parse(text).nano


def _value(nano: int) -> Any:
    return QUANTITY(str(nano))


def _nano(value: Any) -> int:
    if semver.is_version(value):
        raise ValueError("no such overload")
    return int(value.text)


def _is_integer(nano: int) -> bool:
    return nano % NANO == 0 and nano // NANO in _INT64


def _as_integer(value: Any) -> int:
    nano = _nano(value)
    if not _is_integer(nano):
        raise ValueError("cannot convert value to integer")
    return nano // NANO


def _compare(left: Any, right: Any) -> int:
    """Return the order of two quantities, or of two versions."""
    if semver.is_version(left) or semver.is_version(right):
        older, newer = semver.version_of(left), semver.version_of(right)
        return (older > newer) - (older < newer)
    return _sign(_nano(left) - _nano(right))


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
