"""Results of checks: what stands against a workload, where, and which rule says so."""

from __future__ import annotations

import msgspec

ERROR, WARNING = "error", "warning"

RULES = {
    "unreadable": "The file cannot be read as manifests.",
    "invalid": "The definition of the object's kind does not allow a field or its value.",
    "class-missing": "The pod names a RuntimeClass that does not exist.",
    "handler-missing": "No node that the pod may use has the handler of its class.",
    "no-node": "No node matches the nodeSelector of the pod's class.",
    "features-unknown": "No probe has looked at the handler of the pod's class yet.",
    "class-choice": "No class fits the needs of the pod, or its default class does not exist.",
    "floor": "The isolation of the pod's class is below the floor of its namespace.",
    "allow-list": "The policies of the namespace do not allow the pod's class.",
    "class-closed": "The pod names a RuntimeClass that is there for probes alone.",
    "feature": "The pod asks its class for a feature that the class lacks.",
}
"""Rule → what it says, in one sentence."""


class Result(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One result. `line` counts from 1; `level` is error for what an API server would refuse.

    `classes` are those that would do, the cheapest first.
    """

    file: str
    line: int
    rule: str
    level: str
    message: str
    kind: str = ""
    namespace: str = ""
    name: str = ""
    field: str = ""
    classes: tuple[str, ...] = ()
