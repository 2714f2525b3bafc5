"""Defaults declared in rows: a path and the value that an absent field gets.

    defaults(
        ("spec.replicas", 1),
        ("spec.parameters?.scope", "Cluster"),
        ("subsets[*].ports[*].protocol", "TCP"),
        ("spec.template", default_pod_template),
    )

Objects on the way to a field are made, unless their name ends with `?`: those, and items of lists,
get defaults only where they are. A function in place of a value fills the object at the path.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, TypeAlias

from moorage.apiserver.registry.kind import Obj

Fill: TypeAlias = Callable[[Obj], None]
Default: TypeAlias = tuple[str, Any]
"""A path and its value, or the function that fills the object there."""


def defaults(*rows: Default) -> Fill:
    """Return the function that sets the defaults, in the order of the rows."""
    fills = [_compiled(where.split("."), value) for where, value in rows]

    def set_defaults(obj: Obj) -> None:
        for fill in fills:
            fill(obj)

    return set_defaults


def _compiled(steps: list[str], value: Any) -> Fill:
    step, rest = steps[0], steps[1:]
    if not rest:
        return _last(step, value)
    inner = _compiled(rest, value)
    if step.endswith("[*]"):
        return _in_items(step.removesuffix("[*]"), inner)
    if step.endswith("?"):
        return _where_present(step.removesuffix("?"), inner)
    return lambda obj: inner(obj.setdefault(step, {}))


def _last(step: str, value: Any) -> Fill:
    if callable(value):
        if step.endswith("[*]"):
            return _in_items(step.removesuffix("[*]"), value)
        if step.endswith("?"):
            return _where_present(step.removesuffix("?"), value)
        return lambda obj: value(obj.setdefault(step, {}))

    if isinstance(value, dict | list):
        # Objects must not share what a later step may change.
        def set_copy(obj: Obj) -> None:
            if step not in obj:
                obj[step] = deepcopy(value)

        return set_copy

    def set_value(obj: Obj) -> None:
        obj.setdefault(step, value)

    return set_value


def _in_items(name: str, inner: Fill) -> Fill:
    def fill(obj: Obj) -> None:
        for item in obj.get(name, ()):
            inner(item)

    return fill


def _where_present(name: str, inner: Fill) -> Fill:
    def fill(obj: Obj) -> None:
        child = obj.get(name)
        if child is not None:
            inner(child)

    return fill
