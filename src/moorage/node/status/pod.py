"""Pod status as the kubelet reports it.

Pure. A pod is reported as terminal only when none of its containers is running, and never changes
its phase after that. Source: kubelet `generateAPIPodStatus`, `TerminatePod`, `mergePodStatus`.
"""

from __future__ import annotations

import msgspec

from moorage.api.containers import ResourceRequirements
from moorage.api.pods import ContainerStatus, HostIP, Pod, PodIP, PodStatus
from moorage.api.quantity import to_texts
from moorage.node.pod_facts.containers import FAILED, PENDING, TERMINAL, Kind
from moorage.node.pod_facts.resources import in_use
from moorage.node.status.conditions import conditions_of
from moorage.node.status.containers import LOST, container_statuses
from moorage.node.status.inputs import StatusInputs, TerminationReason
from moorage.node.status.phase import phase_of
from moorage.runtimeclass import pod_limits
from moorage.runtimeclass.overhead import pod_requests_without_overhead


def status_of(inputs: StatusInputs) -> PodStatus:
    """Return the status to report now."""
    init = container_statuses(inputs, Kind.INIT)
    main = container_statuses(inputs, Kind.MAIN)
    phase, reason, message = _phase(inputs, (*init, *main))
    ips = inputs.view.ips
    if inputs.pod.spec.host_network and inputs.view.sandbox is not None and not ips:
        ips = inputs.host_ips
    # A pod keeps its addresses when its network is gone: those of a completed job stay visible.
    ips = ips or tuple(address.ip for address in inputs.pod.status.pod_ips)
    return PodStatus(
        observed_generation=inputs.pod.metadata.generation,
        phase=phase,
        reason=reason,
        message=message,
        conditions=conditions_of(inputs, (*init, *main), phase),
        host_ip=inputs.host_ips[0] if inputs.host_ips else "",
        host_ips=tuple(HostIP(ip=host_ip) for host_ip in inputs.host_ips),
        pod_ip=ips[0] if ips else "",
        pod_ips=tuple(PodIP(ip=ip) for ip in ips),
        start_time=inputs.before.start_time or inputs.pod.status.start_time or inputs.stamp,
        init_container_statuses=init,
        container_statuses=main,
        ephemeral_container_statuses=container_statuses(inputs, Kind.EPHEMERAL),
        qos_class=inputs.qos_class,
        resources=_resources(in_use(inputs.pod, inputs.given)),
        allocated_resources=to_texts(pod_requests_without_overhead(inputs.pod.spec)),
    )


def _phase(inputs: StatusInputs, statuses: tuple[ContainerStatus, ...]) -> tuple[str, str, str]:
    """Return phase, reason and message."""
    before = inputs.before
    if before.phase in TERMINAL:
        return before.phase, before.reason, before.message
    if inputs.is_restarting and inputs.termination is None:
        return before.phase or PENDING, before.reason, before.message
    if inputs.termination is not None:
        phase, reason, message = FAILED, inputs.termination.reason, inputs.termination.message
    else:
        names = {container.name for container in inputs.pod.spec.containers}
        sandbox = inputs.view.sandbox
        has_main_started = sandbox is not None and any(
            container.sandbox_id == sandbox.id and container.name in names
            for container in inputs.view.containers
        )
        phase = phase_of(
            inputs.pod.spec,
            statuses,
            is_final=inputs.is_final,
            has_main_started=has_main_started,
        )
        is_same = phase == before.phase
        reason, message = (before.reason, before.message) if is_same else ("", "")
    if phase in TERMINAL and inputs.view.alive:
        return before.phase or PENDING, before.reason, before.message
    return phase, reason, message


def refused(inputs: StatusInputs, termination: TerminationReason) -> PodStatus:
    """Return the status of a pod that this node refuses."""
    return PodStatus(
        observed_generation=inputs.pod.metadata.generation,
        phase=FAILED,
        reason=termination.reason,
        message=f"Pod was rejected: {termination.message}",
        conditions=conditions_of(inputs, (), FAILED),
        start_time=inputs.pod.status.start_time or inputs.stamp,
        qos_class=inputs.qos_class,
    )


def ended(status: PodStatus, inputs: StatusInputs) -> PodStatus:
    """Return the final status of a terminated pod, with a terminal state for every container."""
    main, init = status.container_statuses, status.init_container_statuses
    if _has_initialized(inputs.pod, status):
        main = tuple(_accounted(status) for status in main)
    begun = _begun(init)
    init = (*(_accounted(status) for status in init[:begun]), *init[begun:])
    phase = status.phase if status.phase in TERMINAL else FAILED
    final = msgspec.structs.replace(
        status, container_statuses=main, init_container_statuses=init, phase=phase
    )
    conditions = conditions_of(inputs, (*init, *main), phase)
    return msgspec.structs.replace(final, conditions=conditions)


def _accounted(status: ContainerStatus) -> ContainerStatus:
    if status.state.terminated is not None:
        return status
    return msgspec.structs.replace(status, state=LOST, ready=False, started=False)


def _has_initialized(pod: Pod, status: PodStatus) -> bool:
    if not pod.spec.init_containers:
        return True
    if any(
        container_status.last_state.terminated is not None or container_status.state.waiting is None
        for container_status in status.container_statuses
    ):
        return True
    if not status.init_container_statuses:
        return False
    last = status.init_container_statuses[-1]
    if pod.spec.init_containers[-1].restart_policy == "Always":
        return last.state.running is not None and bool(last.started)
    ends = (last.last_state.terminated, last.state.terminated)
    return any(end is not None and end.exit_code == 0 for end in ends)


def _begun(statuses: tuple[ContainerStatus, ...]) -> int:
    """Return how many init containers, from the first on, have started; at least one counts."""
    for index in range(len(statuses), 0, -1):
        status = statuses[index - 1]
        if status.state.waiting is None or status.last_state.terminated is not None:
            return index
    return min(len(statuses), 1)


def _resources(pod: Pod) -> ResourceRequirements | None:
    """Return the pod's total resources without overhead, which is in the spec.

    Upstream adds the overhead here, and its scheduler then counts it twice.
    """
    bare = msgspec.structs.replace(pod.spec, overhead={})
    requests = to_texts(pod_requests_without_overhead(pod.spec))
    limits = to_texts(pod_limits(bare))
    if not requests and not limits:
        return None
    return ResourceRequirements(limits=limits, requests=requests)
