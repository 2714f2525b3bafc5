"""Bounds on untrusted JSON values: depth and number.

A request body of 3 MiB can contain a million empty lists, nested as deep as it is long. Code that
processes objects recurses and takes some microseconds per value, so both are bounded at decoding.
kube-apiserver bounds the depth at 10,000, which fits a Go stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

MAX_DEPTH: Final = 100
"""Levels of maps and lists. Kubernetes' deepest kinds need about 20."""

MAX_VALUES: Final = 150_000
"""Values of one document, keys not counted. The largest objects that etcd accepts have 100,000."""

TOO_DEEP: Final = f"exceeded max depth of {MAX_DEPTH}"
TOO_MANY: Final = f"more than {MAX_VALUES} values"


def may_exceed(text: bytes) -> bool:
    """Return whether JSON text may hold more values than `MAX_VALUES`, without decoding it.

    Commas and brackets in its strings count too, so this suits text whose strings have few.
    """
    return text.count(b",") + text.count(b"[") + text.count(b"{") > MAX_VALUES


def _values_of(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def exceeded(value: Any, values_of: Callable[[Any], Iterable[Any]] = _values_of) -> str:
    """Return the bound that a JSON value exceeds, as a phrase; empty for none.

    `values_of` returns the values of a dict or list. Iterative: works on values of any depth. Takes
    about 50 ns per value.
    """
    count = 1
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        if not level:
            return ""
        inner: list[Any] = []
        for container in level:
            count += len(container)
            inner += [item for item in values_of(container) if isinstance(item, dict | list)]
        if count > MAX_VALUES:
            return TOO_MANY
        level = inner
    return TOO_DEEP if level else ""
