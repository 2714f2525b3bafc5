"""Default flow schemas and priority levels of a cluster: the mandatory and the suggested ones.

Source: apiserver `apis/flowcontrol/bootstrap` of Kubernetes 1.36. The specifications of the
mandatory ones are those that validation insists on.
"""

from __future__ import annotations

from typing import Any

from moorage.api.flow_control import CATCH_ALL, EXEMPT
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds.flowschema import FLOW_SCHEMA, MANDATORY_SPECS
from moorage.apiserver.registry.kinds.prioritylevelconfiguration import (
    CATCH_ALL_SPEC,
    PRIORITY_LEVEL_CONFIGURATION,
)

AUTO_UPDATE = "apf.kubernetes.io/autoupdate-spec"
"""The annotation that says whether the server restores the specification of a suggested object."""

_ANY = ["*"]
_EVERYONE = ("Group system:unauthenticated", "Group system:authenticated")
_NODES = ("Group system:nodes",)
_SYSTEM_ACCOUNTS = ("ServiceAccount kube-system/*",)
_CONTROLLERS, _SCHEDULER = "User system:kube-controller-manager", "User system:kube-scheduler"


def _subject(text: str) -> Obj:
    kind, _, name = text.partition(" ")
    if kind == "ServiceAccount":
        namespace, _, account = name.partition("/")
        return {"kind": kind, "serviceAccount": {"namespace": namespace, "name": account}}
    return {"kind": kind, kind.lower(): {"name": name}}


def _resources(
    groups: list[str], resources: list[str], verbs: list[str] = _ANY, *, is_cluster: bool = True
) -> Obj:
    rule: Obj = {"verbs": verbs, "apiGroups": groups, "resources": resources, "namespaces": _ANY}
    return {**rule, "clusterScope": True} if is_cluster else rule


def _urls(verbs: list[str], urls: list[str]) -> Obj:
    return {"verbs": verbs, "nonResourceURLs": urls}


_EVERY_RESOURCE, _EVERY_URL = _resources(_ANY, _ANY), _urls(_ANY, _ANY)


def _schema_spec(
    level: str,
    precedence: int,
    method: str,
    subjects: tuple[str, ...],
    resources: tuple[Obj, ...] = (_EVERY_RESOURCE,),
    urls: tuple[Obj, ...] = (_EVERY_URL,),
) -> Obj:
    rule: Obj = {"subjects": [_subject(subject) for subject in subjects]}
    if resources:
        rule["resourceRules"] = list(resources)
    if urls:
        rule["nonResourceRules"] = list(urls)
    spec: Obj = {
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "rules": [rule],
    }
    return {**spec, "distinguisherMethod": {"type": method}} if method else spec


def _queue(shares: int, lendable: int, queues: int, hand: int) -> Obj:
    queuing = {"queues": queues, "handSize": hand, "queueLengthLimit": 50}
    return {
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": shares,
            "lendablePercent": lendable,
            "limitResponse": {"type": "Queue", "queuing": queuing},
        },
    }


MANDATORY_LEVELS: dict[str, Obj] = {
    CATCH_ALL: CATCH_ALL_SPEC,
    EXEMPT: {
        "type": "Exempt",
        "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0},
    },
}

SUGGESTED_LEVELS: dict[str, Obj] = {
    "system": _queue(30, 33, 64, 6),
    "node-high": _queue(40, 25, 64, 6),
    "leader-election": _queue(10, 0, 16, 4),
    "workload-high": _queue(40, 50, 128, 6),
    "workload-low": _queue(100, 90, 128, 6),
    "global-default": _queue(20, 50, 128, 6),
}

MANDATORY_SCHEMAS: dict[str, Obj] = MANDATORY_SPECS

_LEASES = ["coordination.k8s.io"], ["leases"]

SUGGESTED_SCHEMAS: dict[str, Obj] = {
    "system-nodes": _schema_spec("system", 500, "ByUser", _NODES),
    "system-node-high": _schema_spec(
        "node-high", 400, "ByUser", _NODES,
        (_resources([""], ["nodes", "nodes/status"]), _resources(*_LEASES, is_cluster=False)),
        (),
    ),
    "probes": _schema_spec(
        EXEMPT, 2, "", _EVERYONE, (), (_urls(["get"], ["/healthz", "/readyz", "/livez"]),)
    ),
    "system-leader-election": _schema_spec(
        "leader-election", 100, "ByUser", (_CONTROLLERS, _SCHEDULER, *_SYSTEM_ACCOUNTS),
        (_resources(*_LEASES, ["get", "create", "update"], is_cluster=False),),
        (),
    ),
    "kube-controller-manager": _schema_spec("workload-high", 800, "ByNamespace", (_CONTROLLERS,)),
    "kube-scheduler": _schema_spec("workload-high", 800, "ByNamespace", (_SCHEDULER,)),
    "kube-system-service-accounts": _schema_spec(
        "workload-high", 900, "ByNamespace", _SYSTEM_ACCOUNTS
    ),
    "service-accounts": _schema_spec(
        "workload-low", 9000, "ByUser", ("Group system:serviceaccounts",)
    ),
    "global-default": _schema_spec("global-default", 9900, "ByUser", _EVERYONE),
}  # fmt: skip


def default_objects() -> list[tuple[Kind, Obj, bool]]:
    """Return kind, content and whether it is mandatory, of each default object."""
    tables = (
        (PRIORITY_LEVEL_CONFIGURATION, SUGGESTED_LEVELS, False),
        (FLOW_SCHEMA, SUGGESTED_SCHEMAS, False),
        (PRIORITY_LEVEL_CONFIGURATION, MANDATORY_LEVELS, True),
        (FLOW_SCHEMA, MANDATORY_SCHEMAS, True),
    )
    return [
        (kind, _object(name, spec), is_mandatory)
        for kind, table, is_mandatory in tables
        for name, spec in table.items()
    ]


def _object(name: str, spec: Obj) -> Obj:
    metadata: dict[str, Any] = {"name": name, "annotations": {AUTO_UPDATE: "true"}}
    return {"metadata": metadata, "spec": spec}
