"""Bounds on JSON values from outside: how deep, and how many.

A request body of 3 MiB can hold a million empty lists, nested as deep as it is long. What works on
objects recurses and costs some microseconds a value, so both are bounded where values come in.
kube-apiserver bounds the depth at 10,000, which a Go stack can take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

MAX_DEPTH: Final = 100
"""Levels of maps and lists. Kubernetes' deepest kinds need about 20."""

MAX_VALUES: Final = 150_000
"""Values of one document, keys not counted. The largest objects that etcd takes have 100,000."""

TOO_DEEP: Final = f"exceeded max depth of {MAX_DEPTH}"
TOO_MANY: Final = f"more than {MAX_VALUES} values"


def _values_of(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def exceeded(value: Any, values_of: Callable[[Any], Iterable[Any]] = _values_of) -> str:
    """Return which bound a JSON value exceeds, as a phrase; empty for none.

    `values_of` gives what a dict or list holds. Iterative: works on values of any depth. Costs
    about 50 ns a value.
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
