"""Pod phase from the states of its containers. Source: kubelet `getPhase`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moorage.api.pods import ContainerStatus, PodSpec
from moorage.node.pod_facts.containers import FAILED, PENDING, RUNNING, SUCCEEDED, should_restart
from moorage.node.pod_facts.labels import AnyContainer
from moorage.runtimeclass.overhead import is_sidecar


@dataclass(slots=True)
class _Count:
    running: int = 0
    waiting: int = 0
    unknown: int = 0
    stopped: int = 0
    stopped_for_good: int = 0
    succeeded: int = 0
    initializing: int = 0
    failed_for_good: int = 0


def phase_of(
    spec: PodSpec,
    statuses: Sequence[ContainerStatus],
    *,
    is_final: bool,
    has_main_started: bool,
) -> str:
    """Return `Pending`, `Running`, `Succeeded` or `Failed`.

    `statuses` are those of init and main containers. `has_main_started`: a main container exists in
    the current sandbox, which means that initialization is complete.
    """
    by_name = {status.name: status for status in statuses}
    count = _Count()
    for container in spec.init_containers:
        status = by_name.get(container.name)
        if is_sidecar(container):
            _count_sidecar(count, status, has_main_started)
        else:
            _count_init(count, spec, container, status)
    for container in spec.containers:
        _count_main(count, spec, container, by_name.get(container.name))
    return _phase(count, is_final)


def _phase(count: _Count, is_final: bool) -> str:
    if count.failed_for_good:
        return FAILED
    if count.initializing or count.waiting or count.unknown:
        return PENDING
    if count.running:
        return RUNNING
    if not count.stopped:
        return PENDING
    if not is_final and count.stopped != count.stopped_for_good:
        return RUNNING
    return SUCCEEDED if count.stopped == count.succeeded else FAILED


def _count_init(
    count: _Count, spec: PodSpec, container: AnyContainer, status: ContainerStatus | None
) -> None:
    ended = None
    if status is not None and status.state.running is None:
        ended = status.state.terminated
        if ended is None and status.state.waiting is not None:
            ended = status.last_state.terminated
    if ended is None:
        count.initializing += 1
    elif ended.exit_code != 0 and not should_restart(container, spec, ended.exit_code):
        count.failed_for_good += 1


def _count_sidecar(count: _Count, status: ContainerStatus | None, has_main_started: bool) -> None:
    if status is None:
        count.unknown += 1
        return
    is_pending = False
    if status.state.running is not None:
        is_pending = not status.started
        count.running += 1
    elif status.state.terminated is None and status.last_state.terminated is None:
        is_pending = True
        count.waiting += 1
    if is_pending and not has_main_started:
        count.initializing += 1


def _count_main(
    count: _Count, spec: PodSpec, container: AnyContainer, status: ContainerStatus | None
) -> None:
    if status is None:
        count.unknown += 1
        return
    if status.state.running is not None:
        count.running += 1
        return
    ended = status.state.terminated
    if ended is not None and ended.exit_code == 0:
        count.succeeded += 1
    if ended is None and status.state.waiting is not None:
        ended = status.last_state.terminated
        if ended is None:
            count.waiting += 1
            return
    if ended is None:
        count.unknown += 1
        return
    count.stopped += 1
    if not should_restart(container, spec, ended.exit_code):
        count.stopped_for_good += 1
