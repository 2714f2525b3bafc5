"""Bootstrap objects: namespaces, roles and bindings of a new cluster.

Created at every start where absent; roles with `autoupdate` get missing rules restored. Source:
API docs "Default roles and role bindings", "Initial namespaces".
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from moorage.api.clock import Clock, format_time
from moorage.api.errors import AlreadyExistsError
from moorage.api.logs import Log
from moorage.api.rbac import PolicyRule
from moorage.api.services import DEFAULT_NAME, READY
from moorage.apiserver.admission.namespaces import IMMORTAL
from moorage.apiserver.authorization.default_policy import (
    AGGREGATED,
    BINDINGS,
    NAMESPACED_BINDINGS,
    NAMESPACED_ROLES,
    OWN_AGGREGATED,
    ROLES,
    SYSTEM,
)
from moorage.apiserver.authorization.default_policy.rules import READ, rule
from moorage.apiserver.authorization.node import NODE_RULES
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds.apiservice import API_SERVICE
from moorage.apiserver.registry.kinds.core import NAMESPACE
from moorage.apiserver.registry.kinds.networking import SERVICE_CIDR
from moorage.apiserver.registry.kinds.priorityclass import PRIORITY_CLASS
from moorage.apiserver.registry.kinds.rbac import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    ROLE,
    ROLE_BINDING,
)
from moorage.apiserver.registry.kinds.service import SERVICE
from moorage.apiserver.registry.kinds.unstored import GROUP as METRICS_GROUP
from moorage.apiserver.registry.kinds.unstored import VERSION as METRICS_VERSION
from moorage.apiserver.registry.objects import Objects
from moorage.apiserver.registry.rbac import uncovered
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Request, User

# ServiceCIDR `kubernetes`: the network of cluster IPs, without which no service is created.
#
# Source: controlplane `defaultservicecidr` of Kubernetes 1.36.

_USER = User(name="system:apiserver", groups=(SYSTEM_MASTERS,))

log = Log(__name__)


async def write_service_network(
    objects: Objects, network: ipaddress.IPv4Network, clock: Clock
) -> None:
    """Create the ServiceCIDR where it is absent, and say that it is ready.

    One with another network stays as it is, and so does a condition that another has set.
    """
    request = Request(user=_USER, is_own=True, user_agent="apiserver/bootstrap")
    wanted = {"metadata": {"name": DEFAULT_NAME}, "spec": {"cidrs": [str(network)]}}
    present = objects.find(SERVICE_CIDR, "", DEFAULT_NAME)
    if present is None:
        try:
            present = await objects.create(request, SERVICE_CIDR, SERVICE_CIDR.storage, "", wanted)
        except AlreadyExistsError:
            present = objects.get(SERVICE_CIDR, "", DEFAULT_NAME)
    if present.obj["spec"] != wanted["spec"]:
        log.warning("another default ServiceCIDR", has=present.obj["spec"], wanted=str(network))
        return
    if _is_decided(present.obj) or "deletionTimestamp" in present.obj["metadata"]:
        return
    condition = {
        "type": READY,
        "status": "True",
        "reason": "",
        "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": format_time(clock.now()),
    }

    def make_new(old: Obj | None) -> Obj:
        assert old is not None
        return {**old, "status": {"conditions": [condition]}}

    await objects.update(
        request, SERVICE_CIDR, SERVICE_CIDR.storage, "", DEFAULT_NAME, make_new,
        subresource="status",
    )  # fmt: skip


def _is_decided(service_cidr: Obj) -> bool:
    conditions = service_cidr.get("status", {}).get("conditions", [])
    return any(one["type"] == READY and one["status"] in ("True", "False") for one in conditions)


SYSTEM_NAMESPACES = (*sorted(IMMORTAL), "kube-node-lease")
_RBAC = "rbac.authorization.k8s.io"
_AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_BOOTSTRAPPING = {"kubernetes.io/bootstrapping": "rbac-defaults"}

PRIORITY_CLASSES = {
    "system-cluster-critical": (
        2000000000,
        "Used for system critical pods that must run in the cluster, but can be moved to another "
        "node if necessary.",
    ),
    "system-node-critical": (
        2000001000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
}


async def bootstrap(objects: Objects, *, service_ip: str, secure_port: int) -> None:
    """Create the missing objects. `service_ip` is the address of the service `kubernetes`."""
    namespaces = [_named(name) for name in SYSTEM_NAMESPACES]
    await _create_all(objects, ((NAMESPACE, "", obj) for obj in namespaces))
    roles = [*(_role(name, rules) for name, rules in ROLES.items()), _node_role()]
    await _create_all(
        objects,
        [
            *((CLUSTER_ROLE, "", role) for role in roles),
            *_other_objects(),
            (SERVICE, "default", _api_service(service_ip, secure_port)),
        ],
    )
    await _restore_rules(objects, roles)


async def create_api_service(objects: Objects, *, service_ip: str, secure_port: int) -> None:
    """Create the service `kubernetes` where it is absent."""
    service = _api_service(service_ip, secure_port)
    await _create_all(objects, [(SERVICE, "default", service)])


def _other_objects() -> Iterator[tuple[Kind, str, Obj]]:
    """Yield kind, namespace and content of what does not depend on options, but for the roles."""
    for name in AGGREGATED:
        yield CLUSTER_ROLE, "", _aggregated_role(name)
    yield CLUSTER_ROLE, "", _metrics_reader()
    for name, (role, rules) in OWN_AGGREGATED.items():
        labels = {f"{_RBAC}/aggregate-to-{role}": "true"}
        yield CLUSTER_ROLE, "", {**_system_named(name, labels), "rules": rules}
    yield API_SERVICE, "", _metrics_service()
    for name, subjects in BINDINGS.items():
        yield CLUSTER_ROLE_BINDING, "", _binding(name, "ClusterRole", name, subjects)
    for (namespace, name), rules in NAMESPACED_ROLES.items():
        yield ROLE, namespace, _role(name, rules)
    for (namespace, name), (role, *bound) in NAMESPACED_BINDINGS.items():
        yield ROLE_BINDING, namespace, _binding(name, "Role", role, bound)
    for name, (value, description) in PRIORITY_CLASSES.items():
        yield (
            PRIORITY_CLASS,
            "",
            {
                **_named(name), "value": value, "description": description,
                "preemptionPolicy": "PreemptLowerPriority",
            },
        )  # fmt: skip


async def _create_all(objects: Objects, wanted: Iterable[tuple[Kind, str, Obj]]) -> None:
    """Create objects, given as kind, namespace and content, unless they exist."""
    request = Request(user=_USER, is_own=True, user_agent="apiserver/bootstrap")

    async def create(kind: Kind, namespace: str, obj: Obj) -> None:
        if objects.find(kind, namespace, obj["metadata"]["name"]) is not None:
            return
        kind.strategy.default(obj)
        try:
            await objects.create(request, kind, kind.storage, namespace, obj)
        except AlreadyExistsError:
            return  # Another server of the same store created it first.

    # Concurrently, so that they share a commit.
    await asyncio.gather(*(create(*entry) for entry in wanted))


async def _restore_rules(objects: Objects, wanted: Iterable[Obj]) -> None:
    """Restore missing rules of roles with `autoupdate`: an older version had fewer."""
    request = Request(user=_USER, is_own=True, user_agent="apiserver/bootstrap")

    async def restore(role: Obj) -> None:
        present = objects.get(CLUSTER_ROLE, "", role["metadata"]["name"]).obj
        if present["metadata"].get("annotations", {}).get(_AUTOUPDATE) != "true":
            return
        held = present.get("rules", [])
        missing = [] if held == role["rules"] else _missing_rules(held, role["rules"])
        if not missing:
            return

        def make_new(old: Obj | None) -> Obj:
            assert old is not None
            return {**old, "rules": [*old.get("rules", []), *missing]}

        await objects.update(
            request, CLUSTER_ROLE, CLUSTER_ROLE.storage, "", role["metadata"]["name"], make_new
        )

    await asyncio.gather(*(restore(role) for role in wanted))


def _missing_rules(held: list[Obj], wanted: list[Obj]) -> list[Obj]:
    """Return the wanted rules that the held ones do not cover."""
    typed = msgspec.convert(held, list[PolicyRule])
    return [rule for rule in wanted if uncovered(typed, [msgspec.convert(rule, PolicyRule)])]


def _named(name: str, **metadata: Any) -> Obj:
    return {"metadata": {"name": name, **metadata}}


def _system_named(name: str, extra_labels: dict[str, str] | None = None) -> Obj:
    return _named(
        name,
        labels={**_BOOTSTRAPPING, **(extra_labels or {})},
        annotations={_AUTOUPDATE: "true"},
    )


def _role(name: str, rules: list[Obj]) -> Obj:
    labels = {}
    if name.startswith("system:aggregate-to-"):
        labels[f"{_RBAC}/aggregate-to-{name.rpartition('-')[2]}"] = "true"
    return {**_system_named(name, labels), "rules": rules}


def _node_role() -> Obj:
    rules = [
        {
            "apiGroups": list(rule.api_groups),
            "resources": list(rule.resources),
            "verbs": list(rule.verbs),
        }
        for rule in NODE_RULES
    ]
    return _role("system:node", rules)


def _aggregated_role(name: str) -> Obj:
    selectors = [
        {"matchLabels": {f"{_RBAC}/aggregate-to-{source}": "true"}} for source in AGGREGATED[name]
    ]
    rules = [rule for source in AGGREGATED[name] for rule in ROLES[f"system:aggregate-to-{source}"]]
    return {
        **_system_named(name),
        "aggregationRule": {"clusterRoleSelectors": selectors},
        "rules": rules,
    }


def _metrics_reader() -> Obj:
    """Return the role that lets viewers read metrics, as metrics-server installs it."""
    labels = {f"{_RBAC}/aggregate-to-{role}": "true" for role in AGGREGATED}
    return {
        **_named("system:aggregated-metrics-reader", labels=labels),
        "rules": [rule(METRICS_GROUP, "pods nodes", READ)],
    }


def _metrics_service() -> Obj:
    """Return the APIService of metrics, with metrics-server's priorities.

    It has no service: this server answers. One that a user has put in its place stays.
    """
    return {
        **_named(f"{METRICS_VERSION}.{METRICS_GROUP}"),
        "spec": {
            "group": METRICS_GROUP,
            "version": METRICS_VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }


def _binding(name: str, role_kind: str, role: str, subjects: Iterable[str]) -> Obj:
    return {
        **_system_named(name),
        "roleRef": {"apiGroup": _RBAC, "kind": role_kind, "name": role},
        "subjects": [_subject(*subject.split(" ", 1)) for subject in subjects],
    }


def _subject(kind: str, name: str) -> Obj:
    if kind == "ServiceAccount":
        return {"kind": kind, "namespace": SYSTEM, "name": name}
    return {"apiGroup": _RBAC, "kind": kind, "name": name}


def _api_service(service_ip: str, secure_port: int) -> Obj:
    labels = {"component": "apiserver", "provider": "kubernetes"}
    return {
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": service_ip,
            "clusterIPs": [service_ip],
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": secure_port}],
        },
    }
