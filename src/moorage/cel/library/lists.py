"""Lists: isSorted, sum, min, max. Source: API docs "Kubernetes list library".

`indexOf` and `lastIndexOf` of lists are not there: the CEL library takes no overloads beside those
of its own string functions of these names.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from moorage.cel.library.declaring import Signature, Type, method


def functions() -> list[Signature]:
    """Return the signatures of the library."""
    return [
        method("isSorted", [Type.LIST], Type.BOOL, _is_sorted),
        method("sum", [Type.LIST], Type.DYN, _sum),
        method("min", [Type.LIST], Type.DYN, _extreme("min", min)),
        method("max", [Type.LIST], Type.DYN, _extreme("max", max)),
    ]


def _is_sorted(items: list[Any]) -> bool:
    return all(left <= right for left, right in pairwise(items))


def _sum(items: list[Any]) -> Any:
    if not items:
        return 0
    total = items[0]
    for item in items[1:]:
        total += item
    return _value(total)


def _extreme(name: str, pick: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def call(items: list[Any]) -> Any:
        if not items:
            raise ValueError(f"{name} called on empty list")
        return _value(pick(items))

    return call


def _value(result: Any) -> Any:
    """Return a result as the library takes it: spans and moments as messages."""
    if isinstance(result, timedelta):
        span = Duration()
        span.FromTimedelta(result)
        return span
    if isinstance(result, datetime):
        moment = Timestamp()
        moment.FromDatetime(result)
        return moment
    return result
