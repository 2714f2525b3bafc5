"""Downward API: a pod's own fields and resources as text.

Used for environment variables and for volume files, which allow slightly different fields. Source:
core/v1 ObjectFieldSelector and ResourceFieldSelector, `fieldpath.ExtractFieldPathAsString`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from moorage.api import quantity
from moorage.api.containers import ResourceRequirements
from moorage.api.pods import Pod
from moorage.api.quantity import Quantity
from moorage.api.volumes import ResourceFieldSelector
from moorage.node.config.errors import ConfigError
from moorage.node.pod_facts.containers import member
from moorage.node.pod_facts.labels import AnyContainer

_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    '"': '\\"',
    "\\": "\\\\",
}
_SUBSCRIPT = re.compile(r"(?P<path>.+)\['(?P<key>.*)'\]")


@dataclass(frozen=True, slots=True)
class DownwardInputs:
    """Node facts for the downward API. Allocatable replaces limits that are not set."""

    host_ips: tuple[str, ...]
    pod_ips: tuple[str, ...]
    allocatable: Mapping[str, str]


_FIELDS: dict[str, Callable[[Pod, DownwardInputs], str]] = {
    "metadata.name": lambda pod, _: pod.metadata.name,
    "metadata.namespace": lambda pod, _: pod.metadata.namespace,
    "metadata.uid": lambda pod, _: pod.metadata.uid,
    "metadata.labels": lambda pod, _: listed(pod.metadata.labels),
    "metadata.annotations": lambda pod, _: listed(pod.metadata.annotations),
    "spec.nodeName": lambda pod, _: pod.spec.node_name,
    "spec.serviceAccountName": lambda pod, _: pod.spec.service_account_name,
    "status.hostIP": lambda _, where: where.host_ips[0] if where.host_ips else "",
    "status.hostIPs": lambda _, where: ",".join(where.host_ips),
    "status.podIP": lambda _, where: where.pod_ips[0] if where.pod_ips else "",
    "status.podIPs": lambda _, where: ",".join(where.pod_ips),
}


def field_value(pod: Pod, path: str, where: DownwardInputs) -> str:
    """Return a field as text; a label or annotation may be selected by key. Raises ConfigError."""
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript is not None:
        match subscript["path"]:
            case "metadata.labels":
                return pod.metadata.labels.get(subscript["key"], "")
            case "metadata.annotations":
                return pod.metadata.annotations.get(subscript["key"], "")
    reader = _FIELDS.get(path)
    if reader is None:
        raise ConfigError(f"unsupported fieldPath: {path}")
    return reader(pod, where)


def listed(values: Mapping[str, str]) -> str:
    """Return `key="value"` lines, sorted by key; values quoted as Go quotes them (`%q`)."""
    return "\n".join(f'{key}="{"".join(map(_quoted, values[key]))}"' for key in sorted(values))


def _quoted(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def resource_value(
    pod: Pod, container: AnyContainer | None, selector: ResourceFieldSelector, where: DownwardInputs
) -> str:
    """Return a request or limit as a multiple of the divisor, rounded up. Raises ConfigError.

    Limits that are not set default to the node's allocatable amount.
    """
    if selector.container_name:
        named = member(pod.spec, selector.container_name)
        if named is None:
            raise ConfigError(f"container {selector.container_name} not found")
        container = named.container
    if container is None:
        raise ConfigError(f"resource {selector.resource}: no container is named")
    side, _, name = selector.resource.partition(".")
    amount = _amount(container.resources, side, name, where, selector.resource)
    divisor = quantity.parse(selector.divisor or "1") or Quantity(quantity.NANO)
    if name == "cpu":
        return str(-(-amount.milli // max(divisor.milli, 1)))
    return str(-(-amount.value // max(divisor.value, 1)))


def _amount(
    resources: ResourceRequirements, side: str, name: str, where: DownwardInputs, whole: str
) -> Quantity:
    is_known = name in ("cpu", "memory", "ephemeral-storage") or name.startswith("hugepages-")
    if side not in ("limits", "requests") or not is_known:
        raise ConfigError(f"unsupported container resource : {whole}")
    chosen = resources.limits if side == "limits" else resources.requests
    amount = quantity.parse(chosen.get(name, "0"))
    if side == "limits" and not amount and not name.startswith("hugepages-"):
        return quantity.parse(where.allocatable.get(name, "0"))
    return amount
