"""Pod status as the kubelet reports it.

Pure. A pod is reported as terminal only when none of its containers is running, and never changes
its phase after that. Source: kubelet `generateAPIPodStatus`, `TerminatePod`, `mergePodStatus`.
"""

from __future__ import annotations

import msgspec

from moorage.api.containers import ResourceRequirements
from moorage.api.pods import ContainerStatus, HostIP, Pod, PodIP, PodStatus
from moorage.api.quantity import to_texts
from moorage.node.pod_facts.containers import Kind
from moorage.node.pod_facts.phases import FAILED, PENDING, TERMINAL
from moorage.node.status.conditions import conditions_of
from moorage.node.status.containers import LOST, container_statuses
from moorage.node.status.inputs import StatusInputs, TerminationReason
from moorage.node.status.phase import phase_of
from moorage.runtimeclass import pod_limits
from moorage.runtimeclass.overhead import pod_requests_without_overhead


def status_of(known: StatusInputs) -> PodStatus:
    """Return the status to report now."""
    init = container_statuses(known, Kind.INIT)
    main = container_statuses(known, Kind.MAIN)
    phase, reason, message = _phase(known, (*init, *main))
    ips = known.view.ips
    if known.pod.spec.host_network and known.view.sandbox is not None and not ips:
        ips = known.host_ips
    return PodStatus(
        observed_generation=known.pod.metadata.generation,
        phase=phase,
        reason=reason,
        message=message,
        conditions=conditions_of(known, (*init, *main), phase),
        host_ip=known.host_ips[0] if known.host_ips else "",
        host_ips=tuple(HostIP(ip=each) for each in known.host_ips),
        pod_ip=ips[0] if ips else "",
        pod_ips=tuple(PodIP(ip=each) for each in ips),
        start_time=known.before.start_time or known.pod.status.start_time or known.stamp,
        init_container_statuses=init,
        container_statuses=main,
        ephemeral_container_statuses=container_statuses(known, Kind.EPHEMERAL),
        qos_class=known.quality,
        resources=_resources(known.pod),
        allocated_resources=to_texts(pod_requests_without_overhead(known.pod.spec)),
    )


def _phase(known: StatusInputs, statuses: tuple[ContainerStatus, ...]) -> tuple[str, str, str]:
    """Return phase, reason and message."""
    before = known.before
    if before.phase in TERMINAL:
        return before.phase, before.reason, before.message
    if known.termination is not None:
        phase, reason, message = FAILED, known.termination.reason, known.termination.message
    else:
        names = {each.name for each in known.pod.spec.containers}
        sandbox = known.view.sandbox
        has_main_started = sandbox is not None and any(
            each.sandbox_id == sandbox.id and each.name in names for each in known.view.containers
        )
        phase = phase_of(
            known.pod.spec,
            statuses,
            is_final=known.is_final,
            has_main_started=has_main_started,
        )
        is_same = phase == before.phase
        reason, message = (before.reason, before.message) if is_same else ("", "")
    if phase in TERMINAL and known.view.alive:
        return before.phase or PENDING, before.reason, before.message
    return phase, reason, message


def refused(known: StatusInputs, termination: TerminationReason) -> PodStatus:
    """Return the status of a pod that this node refuses."""
    return PodStatus(
        observed_generation=known.pod.metadata.generation,
        phase=FAILED,
        reason=termination.reason,
        message=f"Pod was rejected: {termination.message}",
        conditions=conditions_of(known, (), FAILED),
        start_time=known.pod.status.start_time or known.stamp,
        qos_class=known.quality,
    )


def ended(status: PodStatus, known: StatusInputs) -> PodStatus:
    """Return the final status of a terminated pod, with a terminal state for every container."""
    main, init = status.container_statuses, status.init_container_statuses
    if _has_initialized(known.pod, status):
        main = tuple(_accounted(each) for each in main)
    begun = _begun(init)
    init = (*(_accounted(each) for each in init[:begun]), *init[begun:])
    phase = status.phase if status.phase in TERMINAL else FAILED
    final = msgspec.structs.replace(
        status, container_statuses=main, init_container_statuses=init, phase=phase
    )
    conditions = conditions_of(known, (*init, *main), phase)
    return msgspec.structs.replace(final, conditions=conditions)


def _accounted(status: ContainerStatus) -> ContainerStatus:
    if status.state.terminated is not None:
        return status
    return msgspec.structs.replace(status, state=LOST, ready=False, started=False)


def _has_initialized(pod: Pod, status: PodStatus) -> bool:
    if not pod.spec.init_containers:
        return True
    if any(
        each.last_state.terminated is not None or each.state.waiting is None
        for each in status.container_statuses
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
