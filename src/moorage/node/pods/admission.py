"""Pod admission: the node's check of a pod that was bound to it.

Pure. The scheduler decides with what it knew; admission counts the pods that are really present,
and is the first check of pods that set their node name themselves. Overhead counts. Source: kubelet
`lifecycle/predicate.go`, `sysctl/allowlist.go`; scheduler's NodeResourcesFit, NodePorts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from moorage.api import quantity
from moorage.api.host_ports import HostPort, Listener, collide, complaint, host_port_of
from moorage.api.nodes import NO_EXECUTE, NO_SCHEDULE, Node, Taint, first_untolerated, matches_node
from moorage.api.pods import Pod
from moorage.api.qos import BEST_EFFORT
from moorage.api.quantity import Quantity, add_resources, to_texts
from moorage.api.resource_names import is_extended
from moorage.node.config.sandbox import dotted
from moorage.node.pod_facts.qos import pod_qos_class
from moorage.node.pod_facts.sources import is_critical, is_static
from moorage.node.pressure.thresholds import MEMORY_PRESSURE
from moorage.node.pressure.tracking import condition_message
from moorage.node.status.inputs import TerminationReason
from moorage.runtimeclass import pod_requests
from moorage.runtimeclass.overhead import pod_requests_without_overhead

_ZERO = Quantity(0)
_MEMORY_TAINT = Taint(key="node.kubernetes.io/memory-pressure", effect=NO_SCHEDULE)
_ORDER = ("cpu", "memory", "ephemeral-storage")
_SAFE_NET = frozenset(
    {
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
    }
)
_SAFE_IPC = frozenset({"kernel.shm_rmid_forced"})


@dataclass(frozen=True, slots=True)
class AdmissionInputs:
    """Admission's view of the node: its object with the current status, and the pods it runs.

    `listeners` are the host ports that the cluster itself uses, `pressure` the pressure conditions
    that hold. `is_shutting_down` is of the host.
    """

    node: Node
    allocatable: Mapping[str, str]
    has_groups_policy: bool
    others: Sequence[Pod]
    listeners: Sequence[Listener] = ()
    pressure: Sequence[str] = ()
    is_shutting_down: bool = False


def refusal(pod: Pod, inputs: AdmissionInputs) -> TerminationReason | None:
    """Return why the node refuses this pod; None if it is admitted."""
    return _first(_CHECKS, pod, inputs)


def shortage(pod: Pod, inputs: AdmissionInputs) -> TerminationReason | None:
    """Return the shortage that other pods leave for this pod; None if it has room."""
    return _first((_fit, _ports), pod, inputs)


def _first(
    checks: Iterable[Callable[[Pod, AdmissionInputs], TerminationReason | None]],
    pod: Pod,
    inputs: AdmissionInputs,
) -> TerminationReason | None:
    reasons = (check(pod, inputs) for check in checks)
    return next((reason for reason in reasons if reason is not None), None)


def _pressure(pod: Pod, inputs: AdmissionInputs) -> TerminationReason | None:
    """Refuse pods under pressure; under memory pressure alone those of the class BestEffort.

    Source: kubelet `eviction_manager.go` `Admit`.
    """
    conditions = tuple(inputs.pressure)
    if not conditions or is_critical(pod):
        return None
    if conditions == (MEMORY_PRESSURE,) and (
        pod_qos_class(pod) != BEST_EFFORT
        or first_untolerated((_MEMORY_TAINT,), pod.spec.tolerations, {NO_SCHEDULE}) is None
    ):
        return None
    return TerminationReason("Evicted", condition_message(conditions))


def _os(pod: Pod, inputs: AdmissionInputs) -> TerminationReason | None:
    del inputs
    if pod.spec.os is not None and pod.spec.os.name not in ("", "linux"):
        return TerminationReason(
            "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"
        )
    return None


def _groups_policy(pod: Pod, inputs: AdmissionInputs) -> TerminationReason | None:
    context = pod.spec.security_context
    policy = context.supplemental_groups_policy if context is not None else None
    if policy == "Strict" and not inputs.has_groups_policy:
        return TerminationReason(
            "SupplementalGroupsPolicyNotSupported",
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        )
    return None


def _sysctls(pod: Pod, inputs: AdmissionInputs) -> TerminationReason | None:
    del inputs
    context = pod.spec.security_context
    for sysctl in context.sysctls if context is not None else ():
        name = dotted(sysctl.name)
        if name in _SAFE_NET:
            why = "net" if pod.spec.host_network else None
        elif name in _SAFE_IPC:
            why = "ipc" if pod.spec.host_ipc else None
        else:
            return TerminationReason(
                "SysctlForbidden", f'forbidden sysctl: "{name}" not allowlisted'
            )
        if why is not None:
            return TerminationReason(
                "SysctlForbidden",
                f'forbidden sysctl: "{name}" not allowed with host {why} enabled',
            )
    return None


def _fit(pod: Pod, inputs: AdmissionInputs) -> TerminationReason | None:
    present = len(inputs.others)
    most = quantity.parse(inputs.allocatable.get("pods", "0")).value
    if present + 1 > most:
        return _out_of("pods", 1, present, most)
    used = add_resources(*(to_texts(pod_requests(other.spec)) for other in inputs.others))
    for name, wanted in _in_order(_requests(pod, inputs.allocatable)):
        has = quantity.parse(inputs.allocatable.get(name, "0"))
        taken = used.get(name, _ZERO)
        if wanted and taken + wanted > has:
            return _out_of(name, *(_number(name, amount) for amount in (wanted, taken, has)))
    return None


def _requests(pod: Pod, allocatable: Mapping[str, str]) -> dict[str, Quantity]:
    """Return the pod's requests; extended resources that this node lacks are ignored in containers.

    Overhead in such a resource is not ignored, so the pod is refused.
    """
    own = {
        name: amount
        for name, amount in pod_requests_without_overhead(pod.spec).items()
        if not is_extended(name) or name in allocatable
    }
    return add_resources(to_texts(own), pod.spec.overhead)


def _in_order(requests: Mapping[str, Quantity]) -> Iterator[tuple[str, Quantity]]:
    for name in (*_ORDER, *sorted(requests.keys() - set(_ORDER))):
        if name in requests:
            yield name, requests[name]


def _number(name: str, amount: Quantity) -> int:
    return amount.milli if name == "cpu" else amount.value


def _out_of(name: str, wanted: int, used: int, has: int) -> TerminationReason:
    return TerminationReason(
        f"OutOf{name}",
        f"Node didn't have enough resource: {name}, requested: {wanted}, used: {used}, "
        f"capacity: {has}",
    )


def _affinity(pod: Pod, inputs: AdmissionInputs) -> TerminationReason | None:
    if matches_node(pod.spec, inputs.node):
        return None
    return _predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")


def _ports(pod: Pod, inputs: AdmissionInputs) -> TerminationReason | None:
    why = complaint(pod, inputs.listeners)
    if why:
        return _predicate("NodePorts", why)
    taken = [port for other in inputs.others for port in _host_ports(other)]
    for wanted in _host_ports(pod):
        if any(collide(wanted, port) for port in taken):
            return _predicate(
                "NodePorts", "node(s) didn't have free ports for the requested pod ports"
            )
    return None


def _host_ports(pod: Pod) -> Iterable[HostPort]:
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        if container in pod.spec.containers or container.restart_policy == "Always":
            for port in container.ports:
                if port.host_port:
                    yield host_port_of(port)


def _taints(pod: Pod, inputs: AdmissionInputs) -> TerminationReason | None:
    if is_static(pod):
        return None
    taints = inputs.node.spec.taints
    if first_untolerated(taints, pod.spec.tolerations, {NO_EXECUTE}) is None:
        return None
    return _predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")


def _shutdown(pod: Pod, inputs: AdmissionInputs) -> TerminationReason | None:
    """Refuse every pod, static ones too. Source: kubelet `nodeshutdown_manager_linux.go`."""
    del pod
    if not inputs.is_shutting_down:
        return None
    return TerminationReason("NodeShutdown", "Pod was rejected as the node is shutting down.")


_CHECKS = (
    _pressure,
    _os,
    _groups_policy,
    _sysctls,
    _fit,
    _affinity,
    _ports,
    _taints,
    _shutdown,
)
"""In the kubelet's order: the first refusal is reported."""


def _predicate(name: str, why: str) -> TerminationReason:
    return TerminationReason(name, f"Predicate {name} failed: {why}")
