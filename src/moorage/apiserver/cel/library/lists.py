"""Lists: isSorted, sum, min, max, indexOf, lastIndexOf. Source: API docs "Kubernetes list library".

The CEL library takes no overloads beside those of its own string functions: calls of `indexOf` and
`lastIndexOf` are renamed to the functions here (`construction.py`), which are of strings too and
take a list of the arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from moorage.apiserver.cel.library.declaring import Signature, Type, method


def functions() -> list[Signature]:
    """Return the signatures of the library."""
    return [
        method("isSorted", [Type.LIST], Type.BOOL, _is_sorted),
        method("sum", [Type.LIST], Type.DYN, _sum),
        method("min", [Type.LIST], Type.DYN, _extreme("min", min)),
        method("max", [Type.LIST], Type.DYN, _extreme("max", max)),
        *_positions("kubernetes_indexOf", _index_in_list, _index_in_text),
        *_positions("kubernetes_lastIndexOf", _last_index_in_list, _last_index_in_text),
    ]


def _positions(
    name: str, in_list: Callable[..., int], in_text: Callable[..., int]
) -> list[Signature]:
    return [
        method(name, [Type.LIST, Type.LIST], Type.INT, _taking(in_list, object)),
        method(name, [Type.STRING, Type.LIST], Type.INT, _taking(in_text, str, int)),
    ]


def _taking(call: Callable[..., int], *types: type) -> Callable[[Any, list[Any]], int]:
    """Return a function that takes its arguments as a list. Only the first one is required."""

    def checked(receiver: Any, arguments: list[Any]) -> int:
        fits = all(map(isinstance, arguments, types))
        if not fits or not 1 <= len(arguments) <= len(types):
            raise ValueError("no such overload")
        return call(receiver, *arguments)

    return checked


def _index_in_list(items: list[Any], item: Any) -> int:
    return next((index for index, one in enumerate(items) if _equal(one, item)), -1)


def _last_index_in_list(items: list[Any], item: Any) -> int:
    found = (index for index in reversed(range(len(items))) if _equal(items[index], item))
    return next(found, -1)


def _equal(left: Any, right: Any) -> bool:
    # True is no number in CEL.
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _index_in_text(text: str, part: str, start: int = 0) -> int:
    _check_place(text, start)
    return text.find(part, start)


def _last_index_in_text(text: str, part: str, last: int | None = None) -> int:
    if last is None:
        return text.rfind(part)
    _check_place(text, last)
    return text.rfind(part, 0, last + len(part))


def _check_place(text: str, place: int) -> None:
    if not 0 <= place < max(len(text), 1):
        raise ValueError(f"index out of range: {place}")


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
