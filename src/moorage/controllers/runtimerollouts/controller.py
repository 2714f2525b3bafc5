"""Controller of RuntimeRollouts: moves workloads between classes as the state machine decides.

A reconcile observes, takes one step, writes the status and then carries out the moves; their
effect comes back as changes of the workloads and leads to the next step. All it needs after a
restart is on the workloads and in the rollout's status.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api.clock import Clock
from moorage.api.runtime_rollouts import (
    BLOCKED,
    DONE,
    PAUSED,
    PROGRESSING,
    ROLLED_BACK,
    ROLLING_BACK,
    ROLLOUT_ANNOTATION,
    STOPPED,
    RuntimeRollout,
    RuntimeRolloutStatus,
)
from moorage.controllers.informers import Informers
from moorage.controllers.loop import After, Loop, Queued
from moorage.controllers.objects import Node, Pod
from moorage.controllers.requests import status_patch
from moorage.controllers.runtimerollouts.observation import (
    AnyWorkload,
    Sources,
    class_of,
    nodes_of,
    unmovable_of,
    workloads_of,
)
from moorage.controllers.runtimerollouts.writes import AGAIN_S, WorkloadWrites
from moorage.runtimeclass.rollouts import (
    Observation,
    Step,
    find_obstacle,
    find_return_obstacle,
    is_active,
    step,
)
from moorage.wire.client.informer import Informer, latest
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import RUNTIME_ROLLOUTS
from moorage.wire.client.rest import Client

# Pods of a wave change many times a second; a step looks at all workloads.
_GATHER_S = 0.2
_EVENTS = {
    PROGRESSING: (NORMAL, "Progressing"),
    BLOCKED: (WARNING, "Blocked"),
    PAUSED: (NORMAL, "Paused"),
    STOPPED: (WARNING, "Stopped"),
    ROLLING_BACK: (WARNING, "RollingBack"),
    ROLLED_BACK: (NORMAL, "RolledBack"),
    DONE: (NORMAL, "Completed"),
}


class RuntimeRolloutController:
    """Watches rollouts and what they move; patches workloads and the rollouts' status."""

    def __init__(
        self, client: Client, informers: Informers, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._sources = Sources.of(informers)
        self._rollouts = Informer(client, RUNTIME_ROLLOUTS, clock=clock)
        self._writes = WorkloadWrites(client, clock)
        self._reported: dict[str, tuple[str, RuntimeRollout]] = {}
        sources = self._sources
        self.run = Loop(
            "runtime rollouts",
            self._reconcile,
            [
                (self._rollouts, self._rollout_changed),
                *((informer, None) for informer in sources.all),
            ],
            clock,
            owned=[self._rollouts],
            late=[
                *((informer, self._workload_changed) for informer in sources.workloads.values()),
                (sources.pods, self._pod_changed),
                (sources.nodes, self._node_changed),
                (sources.runtime_classes, self._class_changed),
            ],
        ).run

    def _rollout_changed(
        self, before: RuntimeRollout | None, after: RuntimeRollout | None
    ) -> Iterator[Queued[str]]:
        yield latest(before, after).metadata.name
        if before is None or after is None or is_active(before) != is_active(after):
            yield from self._active()

    def _workload_changed(
        self, before: AnyWorkload | None, after: AnyWorkload | None
    ) -> Iterator[Queued[str]]:
        either = after or before
        assert either is not None
        if after is None:
            self._writes.forget(either.metadata.uid)
        classes = {class_of(one) for one in (before, after) if one is not None}
        mark = either.metadata.annotations.get(ROLLOUT_ANNOTATION)
        for rollout in self._rollouts:
            spec, name = rollout.spec, rollout.metadata.name
            if mark == name or classes & {spec.from_, spec.to}:
                yield After(name, _GATHER_S)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> Iterator[Queued[str]]:
        name = latest(before, after).spec.runtime_class_name
        if name:
            for rollout in self._rollouts:
                if is_active(rollout) and name in (rollout.spec.from_, rollout.spec.to):
                    yield After(rollout.metadata.name, _GATHER_S)

    def _node_changed(self, before: Node | None, after: Node | None) -> Iterator[Queued[str]]:
        if before is None or after is None or _offer(before) != _offer(after):
            yield from self._active()

    def _class_changed(self, before: Any, after: Any) -> Iterator[Queued[str]]:
        del before, after
        yield from self._active()

    def _active(self) -> Iterator[Queued[str]]:
        for rollout in self._rollouts:
            if is_active(rollout):
                yield After(rollout.metadata.name, _GATHER_S)

    async def _reconcile(self, name: str) -> float | None:
        rollout = self._current(name)
        if rollout is None or rollout.metadata.deletion_timestamp is not None:
            return None
        now = self._clock.now()
        taken, copies = self._take_step(rollout)
        if taken.status != rollout.status:
            await self._write_status(rollout, taken.status)
        if taken.moves:
            was_refused = await self._writes.carry_out(taken.moves, copies)
            return AGAIN_S if was_refused else _GATHER_S
        if taken.due is None:
            return None
        # Times of objects are whole seconds.
        return max(0.0, (taken.due - now).total_seconds()) + 1.0

    def _current(self, name: str) -> RuntimeRollout | None:
        """Return the rollout with the status that we wrote last, even if it is not seen yet."""
        copied = self._rollouts.get(name)
        known = self._reported.get(name)
        if copied is None or known is None or known[0] != copied.metadata.resource_version:
            self._reported.pop(name, None)
            return copied
        return known[1]

    def _take_step(self, rollout: RuntimeRollout) -> tuple[Step, dict[str, AnyWorkload]]:
        """Return the next step, and the objects that it was decided on by uid."""
        copies: dict[str, AnyWorkload] = {}

        def current(copied: AnyWorkload) -> AnyWorkload:
            newest = self._writes.current(copied)
            copies[newest.metadata.uid] = newest
            return newest

        classes = {one.metadata.name: one for one in self._sources.runtime_classes}
        seen = Observation(
            workloads=workloads_of(rollout, self._sources, current, self._writes.refusal),
            unmovable=unmovable_of(rollout, self._sources),
            obstacle=find_obstacle(rollout, self._rollouts, classes, nodes_of(self._sources)),
            return_obstacle=find_return_obstacle(rollout, classes),
        )
        return step(rollout, seen, self._clock.now()), copies

    async def _write_status(self, rollout: RuntimeRollout, status: RuntimeRolloutStatus) -> None:
        """Write the status. Raises ConflictError if the rollout was changed meanwhile."""
        name = rollout.metadata.name
        copied = self._rollouts.get(name)
        written = await self._client.patch(
            RUNTIME_ROLLOUTS,
            name,
            status_patch(rollout.metadata, rollout.status, status),
            subresource="status",
        )
        if copied is not None:
            self._reported[name] = (copied.metadata.resource_version, written)
        if status.phase != rollout.status.phase and status.phase in _EVENTS:
            type_, reason = _EVENTS[status.phase]
            about = reference(RUNTIME_ROLLOUTS, rollout)
            self._recorder.record(about, type_, reason, _sentence(rollout, status))


def _sentence(rollout: RuntimeRollout, status: RuntimeRolloutStatus) -> str:
    """Return the event's message about a new phase."""
    spec, counts = rollout.spec, status.counts
    if status.stop is not None and status.phase in (STOPPED, ROLLING_BACK):
        return status.stop.message
    for condition in status.conditions:
        wanted = "Accepted" if status.phase == BLOCKED else "Completed"
        if condition.type == wanted:
            return f"{spec.from_} to {spec.to}: {condition.message}"
    return f"{spec.from_} to {spec.to}: {counts.moved} of {counts.total} workloads moved"


def _offer(node: Node) -> tuple[object, object]:
    return node.status.runtime_handlers, node.metadata.labels
