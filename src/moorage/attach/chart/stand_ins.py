"""Stand-ins for the values of a chart: values that are recognised in the objects made of them.

The objects are made with stand-ins in place of what a user chooses, and the chart has the user's
value wherever a stand-in is found. A choice that decides whether something is there at all is a
switch: the objects are made with it on and off, and what differs stands in an `if`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from moorage.api.meta import Raw
from moorage.attach.manifests.runtime_agent import SOCKETS
from moorage.attach.values import CERT_MANAGER, OWN, Values

OPEN, CLOSE = "\ue000", "\ue001"
"""Characters of no alphabet, which no value has."""

_NAMESPACE = "(default $.Release.Namespace $.Values.namespace)"
_FIRST_NUMBER = 900_000_001


def mark(name: str) -> str:
    """Return a text that stands for a value."""
    return f"{OPEN}{name}{CLOSE}"


class ListMarks(msgspec.Struct, frozen=True):
    """Two stand-ins for the elements of a list: two, so that what counts them shows.

    `condition` is the chart's condition for an element, where some are left out.
    """

    expression: str
    elements: tuple[Any, Any]
    condition: str = ""


class Switch(msgspec.Struct, frozen=True):
    """A condition of the chart, and the value of a field where it holds and where it does not."""

    path: str
    condition: str
    on: Any
    off: Any


_TEXTS = (
    "image", "imagePullPolicy", "logLevel", "webhook.failurePolicy", "agent.restartCommand",
    "ui.tlsSecret",
)  # fmt: skip
_NUMBERS = ("webhook.replicas", "controllers.replicas")
_PARTS = ("webhook", "controllers", "agent", "scheduler", "ui")

_CRI_DIRECTORY, _CRI_SOCKET = mark("criDirectory"), mark("criSocket")
_CRI = f"unix:///{_CRI_DIRECTORY}/{_CRI_SOCKET}"

TEXTS: Mapping[str, str] = {
    _CRI: "$.Values.agent.cri",
    f"/{_CRI_DIRECTORY}": '(dir (trimPrefix "unix://" $.Values.agent.cri))',
    mark("namespace"): _NAMESPACE,
    **{mark(name): f"$.Values.{name}" for name in _TEXTS},
    # In texts, such as arguments.
    **{str(_FIRST_NUMBER + index): f"(int $.Values.{name})" for index, name in enumerate(_NUMBERS)},
}
"""What stands in a text, and the expression of the chart; the longest comes first."""

NUMBERS: Mapping[int, str] = {
    _FIRST_NUMBER + index: f"int $.Values.{name}" for index, name in enumerate(_NUMBERS)
}
MAPS: Mapping[str, str] = {
    mark(name): f"$.Values.{name}"
    for name in (
        "agent.nodeSelector",
        *(f"{part}.resources.{amount}" for part in _PARTS for amount in ("requests", "limits")),
    )
}
"""The only key of a map that stands for a map of the user's, and the expression."""

LISTS: tuple[ListMarks, ...] = (
    ListMarks(
        "$.Values.excludedNamespaces",
        (mark("excludedNamespaces#0"), mark("excludedNamespaces#1")),
    ),
    ListMarks(
        "$.Values.agent.hostPaths",
        (f"/{mark('hostPaths#0')}", f"/{mark('hostPaths#1')}"),
        # The socket's directory is mounted already.
        "ne (clean $element) "
        f'(dir (default "{SOCKETS}/x" (trimPrefix "unix://" $.Values.agent.cri)))',
    ),
    ListMarks(
        "$.Values.agent.tolerations",
        ({mark("tolerations#0"): ""}, {mark("tolerations#1"): ""}),
    ),
)

SWITCHES: tuple[Switch, ...] = (
    Switch("createNamespace", "$.Values.createNamespace", True, False),
    Switch("certificates", f'eq $.Values.certificates "{OWN}"', OWN, CERT_MANAGER),
    Switch("controllers.createClasses", "$.Values.controllers.createClasses", True, False),
    Switch("scheduler.enabled", "$.Values.scheduler.enabled", True, False),
    Switch("ui.enabled", "$.Values.ui.enabled", True, False),
    Switch("ui.tlsSecret", "$.Values.ui.tlsSecret", mark("ui.tlsSecret"), ""),
    Switch("agent.installsRuntimes", "$.Values.agent.installsRuntimes", True, False),
    Switch("agent.cri", "$.Values.agent.cri", _CRI, ""),
    Switch(
        "agent.restartCommand", "$.Values.agent.restartCommand", mark("agent.restartCommand"), ""
    ),
    *(
        Switch(f"{part}.replicas", f"gt (int $.Values.{part}.replicas) 1", number, 1)
        for part, number in (
            ("webhook", _FIRST_NUMBER),
            ("controllers", _FIRST_NUMBER + 1),
        )
    ),
    Switch("excludedNamespaces", LISTS[0].expression, LISTS[0].elements, ()),
    Switch("agent.hostPaths", LISTS[1].expression, LISTS[1].elements, ()),
    Switch("agent.tolerations", LISTS[2].expression, LISTS[2].elements, ()),
    *(Switch(key[1:-1], expression, {key: ""}, {}) for key, expression in MAPS.items()),
)


def values_with(switched: Mapping[str, bool]) -> Values:
    """Return the stand-ins, with the switches of these paths on or off; the others are on."""
    raw: Raw = msgspec.to_builtins(Values())
    raw["namespace"] = mark("namespace")
    for name in _TEXTS:
        _put(raw, name, mark(name))
    for switch in SWITCHES:
        _put(raw, switch.path, switch.on if switched.get(switch.path, True) else switch.off)
    return _built(raw)


def _put(raw: Raw, path: str, value: Any) -> None:
    *above, last = path.split(".")
    for key in above:
        raw = raw[key]
    raw[last] = value


def _built(raw: Raw) -> Values:
    """Return values of raw ones without checking them: a stand-in is no valid value."""
    made: Values = _struct(Values, raw)
    return made


def _struct(kind: type[msgspec.Struct], raw: Raw) -> Any:
    fields = {}
    for name, encoded, inner in _fields(kind):
        value = raw[encoded]
        fields[name] = _struct(inner, value) if inner is not None else value
    return kind(**fields)


@cache
def _fields(
    kind: type[msgspec.Struct],
) -> tuple[tuple[str, str, type[msgspec.Struct] | None], ...]:
    """Return each field's name, its name in JSON, and the struct that it holds, or None."""
    return tuple(
        (info.name, info.encode_name, _struct_type(info.type))
        for info in msgspec.structs.fields(kind)
    )


def _struct_type(annotation: Any) -> type[msgspec.Struct] | None:
    """Return the struct that a field holds, None for any other."""
    base = getattr(annotation, "__origin__", annotation)
    is_struct = isinstance(base, type) and issubclass(base, msgspec.Struct)
    return base if is_struct else None
