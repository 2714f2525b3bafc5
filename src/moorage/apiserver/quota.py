"""Quotas: what objects use of a ResourceQuota, the same for admission and its controller.

    matching.py ──▶ charges.py   how an object of each kind is charged, and which scopes it is in
                └─▶ amounts.py   arithmetic on lists of resources

Source: KEP-19, API docs "Resource Quotas"; kube-apiserver `quota/v1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import msgspec

from moorage.api import labels
from moorage.api.claims.annotations import BETA_CLASS
from moorage.api.clock import parse_time
from moorage.api.containers import ResourceRequirements
from moorage.api.meta import Object
from moorage.api.pods import ENDED_PHASES, Pod
from moorage.api.qos import BEST_EFFORT, qos_class
from moorage.api.quantity import NANO, Quantity, parse
from moorage.api.quotas import Counted, PersistentVolumeClaim, ResourceQuotaSpec, ScopedSelector
from moorage.api.resource_names import is_native, is_quota_hugepages
from moorage.api.runtime_group import ALL_CLASSES, RuntimeClassQuotaSpec
from moorage.api.services import Service
from moorage.runtimeclass.overhead import pod_limits, pod_requests
from moorage.runtimeclass.resizing import charged_spec
from moorage.runtimeclass.validation import LEGACY

# Amounts: arithmetic on lists of resources. Source: kube-apiserver `quota/v1/resources.go`.

Amounts = dict[str, Quantity]
ONE = parse(1)
ZERO = Quantity(0)


def parsed(resources: Mapping[str, str]) -> Amounts:
    """Return a ResourceList as amounts."""
    return {name: parse(text) for name, text in resources.items()}


def added(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> Amounts:
    """Return the sum for each resource."""
    total = dict(left)
    for name, amount in right.items():
        total[name] = total[name] + amount if name in total else amount
    return total


def increase(after: Mapping[str, Quantity], before: Mapping[str, Quantity]) -> Amounts:
    """Return the increase of each resource; a decrease counts as 0."""
    return {name: max(ZERO, amount - before.get(name, ZERO)) for name, amount in after.items()}


def masked(amounts: Mapping[str, Quantity], names: Iterable[str]) -> Amounts:
    """Return the amounts of these resources alone."""
    kept = set(names)
    return {name: amount for name, amount in amounts.items() if name in kept}


def exceeded(amounts: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> list[str]:
    """Return the resources of which there is more than the limit."""
    return sorted(
        name for name, limit in limits.items() if name in amounts and limit < amounts[name]
    )


def shown(amounts: Mapping[str, Quantity]) -> str:
    """Return amounts as refusals show them: `cpu=1,memory=2Gi`."""
    return ",".join(f"{name}={amounts[name]}" for name in sorted(amounts))


# Charges: what an object of each kind uses, and which scopes it is in.
#
# A pod's overhead is charged like its requests. Source: kube-controller-manager
# `quota/v1/evaluator/core`, KEP-688.

_COUNT: Final = "count/"
_REQUESTS: Final = "requests."
_LIMITS: Final = "limits."
_COUNTED_BY_NAME = frozenset(("configmaps", "replicationcontrollers", "resourcequotas", "secrets"))
"""Resources that quotas also count by their plain names."""

_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_HUGE_PAGES = "hugepages-"
_OF_CLASS = ".storageclass.storage.k8s.io/"


class Charge(Protocol):
    """How objects of one resource are charged. `type` is what they are decoded to."""

    @property
    def type(self) -> type[Object]: ...

    @property
    def sees_updates(self) -> bool:
        """Whether an update can use more than before."""

    def concerned(self, names: Iterable[str]) -> list[str]:
        """Return those of a quota's resources that such objects use."""

    def usage(self, obj: Any, now: datetime) -> Amounts:
        """Return the usage of an object."""

    def omission(self, names: Iterable[str], obj: Any) -> str:
        """Return the fields that an object must set for a quota on these resources."""

    def is_in(self, selector: ScopedSelector, obj: Any) -> bool:
        """Return whether an object is in a scope."""


def charge_of(resource: str) -> Charge:
    """Return the charge of a resource, by its qualified name (`deployments.apps`)."""
    return _SPECIAL.get(resource) or CountCharge(resource)


class CountCharge:
    """Objects that are only counted, by `count/RESOURCE`."""

    type: type[Object] = Counted
    sees_updates = False

    def __init__(self, resource: str) -> None:
        self._names = [f"{_COUNT}{resource}"]
        if resource in _COUNTED_BY_NAME:
            self._names.append(resource)

    def concerned(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in self._names]

    def usage(self, obj: Any, now: datetime) -> Amounts:
        del obj, now
        return dict.fromkeys(self._names, ONE)

    def omission(self, names: Iterable[str], obj: Any) -> str:
        del names, obj
        return ""

    def is_in(self, selector: ScopedSelector, obj: Any) -> bool:
        del selector, obj
        return False


class PodCharge(CountCharge):
    """Pods: counted, and charged for requests and limits until they end."""

    type = Pod

    def __init__(self) -> None:
        super().__init__("pods")
        compute = {side + name for side in ("", _REQUESTS, _LIMITS) for name in _COMPUTE}
        self._fixed = frozenset((*self._names, "pods", *compute))

    def concerned(self, names: Iterable[str]) -> list[str]:
        return [
            name
            for name in names
            if name in self._fixed
            or is_quota_hugepages(name)
            or (name.startswith(_REQUESTS) and not is_native(name))
        ]

    def usage(self, obj: Any, now: datetime) -> Amounts:
        pod: Pod = obj
        counted = super().usage(pod, now)
        if not _is_charged(pod, now):
            return counted
        spec = charged_spec(pod)
        amounts = _computed(pod_requests(spec), pod_limits(spec))
        return added(counted, {"pods": ONE, **amounts})

    def omission(self, names: Iterable[str], obj: Any) -> str:
        pod: Pod = obj
        if _states_own_resources(pod.spec.resources):
            return ""
        needed = {name for name in names if name.removeprefix(_REQUESTS).removeprefix(_LIMITS)
                  in ("cpu", "memory")}  # fmt: skip
        missing: dict[str, set[str]] = {}
        for container in (*pod.spec.containers, *pod.spec.init_containers):
            resources = container.resources
            stated = _computed(dict.fromkeys(resources.requests, ONE),
                               dict.fromkeys(resources.limits, ONE))  # fmt: skip
            for name in needed - stated.keys():
                missing.setdefault(name, set()).add(container.name)
        texts = [f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing)]
        return f"must specify {'; '.join(texts)}" if texts else ""

    def is_in(self, selector: ScopedSelector, obj: Any) -> bool:
        pod: Pod = obj
        match selector.scope_name:
            case "Terminating":
                return _has_deadline(pod)
            case "NotTerminating":
                return not _has_deadline(pod)
            case "BestEffort":
                return _is_best_effort(pod)
            case "NotBestEffort":
                return not _is_best_effort(pod)
            case "PriorityClass":
                name = pod.spec.priority_class_name
                return _matches(selector, [name] if name else [])
            case "CrossNamespacePodAffinity":
                return _reaches_other_namespaces(pod)
        return False


def _computed(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> Amounts:
    """Return requests and limits under a quota's names."""
    amounts: Amounts = {}
    for name, amount in requests.items():
        if name in _COMPUTE or name.startswith(_HUGE_PAGES):
            amounts[name] = amount
            amounts[_REQUESTS + name] = amount
        elif not is_native(name):
            amounts[_REQUESTS + name] = amount
    for name in _COMPUTE:
        if name in limits:
            amounts[_LIMITS + name] = limits[name]
    return amounts


def _is_charged(pod: Pod, now: datetime) -> bool:
    """Return whether a pod still uses anything: neither ended nor overdue in its deletion."""
    if pod.status.phase in ENDED_PHASES:
        return False
    deleted, grace_s = pod.metadata.deletion_timestamp, pod.metadata.deletion_grace_period_seconds
    if deleted is None or grace_s is None:
        return True
    return now <= parse_time(deleted) + timedelta(seconds=grace_s)


def _states_own_resources(resources: ResourceRequirements | None) -> bool:
    return resources is not None and bool(resources.requests or resources.limits)


def _has_deadline(pod: Pod) -> bool:
    seconds = pod.spec.active_deadline_seconds
    return seconds is not None and seconds >= 0


def _is_best_effort(pod: Pod) -> bool:
    return qos_class(msgspec.to_builtins(pod.spec)) == BEST_EFFORT


def _reaches_other_namespaces(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    if affinity is None:
        return False
    for own in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if own is None:
            continue
        preferred = own.preferred_during_scheduling_ignored_during_execution
        terms = [
            *own.required_during_scheduling_ignored_during_execution,
            *(weighted.pod_affinity_term for weighted in preferred),
        ]
        if any(term.namespaces or term.namespace_selector is not None for term in terms):
            return True
    return False


def _matches(selector: ScopedSelector, values: list[str]) -> bool:
    """Return whether one of the values is selected; without any, whether their absence is."""
    name = selector.scope_name
    expression = {"key": name, "operator": selector.operator, "values": list(selector.values)}
    parsed = labels.from_object({"matchExpressions": [expression]})
    return any(parsed.matches({name: value}) for value in values) or (
        not values and parsed.matches({})
    )


class ServiceCharge(CountCharge):
    """Services: counted, with their node ports and load balancers."""

    type = Service
    sees_updates = True

    def __init__(self) -> None:
        super().__init__("services")
        self._names += ["services", "services.nodeports", "services.loadbalancers"]

    def usage(self, obj: Any, now: datetime) -> Amounts:
        del now
        service: Service = obj
        spec = service.spec
        has_balancer = spec.type == "LoadBalancer"
        node_ports = 0
        if has_balancer and spec.allocate_load_balancer_node_ports is False:
            node_ports = sum(port.node_port != 0 for port in spec.ports)
        elif spec.type in ("NodePort", "LoadBalancer"):
            node_ports = len(spec.ports)
        counted = dict.fromkeys(self._names[:2], ONE)
        return {
            **counted,
            "services.nodeports": Quantity(node_ports * NANO),
            "services.loadbalancers": ONE if has_balancer else ZERO,
        }


class ClaimCharge(CountCharge):
    """PersistentVolumeClaims: counted, and charged for storage, by storage class too."""

    type = PersistentVolumeClaim
    sees_updates = True

    def __init__(self) -> None:
        super().__init__("persistentvolumeclaims")
        self._names += ["persistentvolumeclaims"]
        self._own = ("persistentvolumeclaims", "requests.storage")

    def concerned(self, names: Iterable[str]) -> list[str]:
        ends = tuple(f"{_OF_CLASS}{name}" for name in self._own)
        return [
            name
            for name in names
            if name in self._names or name in self._own or name.endswith(ends)
        ]

    def usage(self, obj: Any, now: datetime) -> Amounts:
        del now
        claim: PersistentVolumeClaim = obj
        own = {"persistentvolumeclaims": ONE}
        stated = claim.spec.resources.requests.get("storage")
        if stated is not None:
            # Storage is counted in whole bytes.
            sizes = [parse(stated)]
            if allocated := claim.status.allocated_resources.get("storage"):
                sizes.append(parse(allocated))
            size = max(sizes)
            own["requests.storage"] = Quantity(size.value * NANO, size.family)
        name = claim.metadata.annotations.get(BETA_CLASS, claim.spec.storage_class_name)
        of_class = {f"{name}{_OF_CLASS}{key}": amount for key, amount in own.items()}
        return {self._names[0]: ONE, **own, **(of_class if name else {})}

    def is_in(self, selector: ScopedSelector, obj: Any) -> bool:
        claim: PersistentVolumeClaim = obj
        if selector.scope_name != "VolumeAttributesClass":
            return False
        modified = claim.status.modify_volume_status
        names = {
            claim.spec.volume_attributes_class_name,
            claim.status.current_volume_attributes_class_name,
            modified.target_volume_attributes_class_name if modified is not None else None,
        }
        return _matches(selector, sorted(name for name in names if name))


_SPECIAL: dict[str, Charge] = {
    "pods": PodCharge(),
    "services": ServiceCharge(),
    "persistentvolumeclaims": ClaimCharge(),
}


# Class quotas: which pods a RuntimeClassQuota counts, and what it charges them for.
#
# Amounts are those of a ResourceQuota, overhead included; a pod is charged until it ends.

POD_CHARGE = charge_of("pods")


def is_counted(spec: RuntimeClassQuotaSpec, class_name: str | None) -> bool:
    """Return whether a quota counts the pods of a class; those without one are `legacy`."""
    return spec.class_name in (ALL_CLASSES, class_name or LEGACY)


def class_usage(spec: RuntimeClassQuotaSpec, pods: Iterable[Pod], now: datetime) -> Amounts:
    """Return the total usage of a quota's amounts by pods."""
    total: Amounts = dict.fromkeys(spec.hard, ZERO)
    for pod in pods:
        if is_counted(spec, pod.spec.runtime_class_name):
            total = added(total, masked(POD_CHARGE.usage(pod, now), spec.hard))
    return total


# Matching: which objects are subject to a quota, and what they use of it together.


def is_subject(spec: ResourceQuotaSpec, hard: Iterable[str], charge: Charge, obj: Any) -> bool:
    """Return whether an object uses one of the `hard` resources and is in all scopes of a quota."""
    if not charge.concerned(hard):
        return False
    return all(charge.is_in(selector, obj) for selector in spec.selectors)


def used_by(
    spec: ResourceQuotaSpec, charge: Charge, objects: Iterable[Any], now: datetime
) -> Amounts:
    """Return the usage by objects of the resources of a quota that they are charged for."""
    names = charge.concerned(spec.hard)
    total: Amounts = dict.fromkeys(names, ZERO)
    for obj in objects:
        if is_subject(spec, names, charge, obj):
            total = added(total, masked(charge.usage(obj, now), names))
    return total
