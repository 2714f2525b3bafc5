"""Pod resizer: one pod's resources, from what it asks for to what its containers have.

    asked for ──grant──▶ promised ──cgroup, containers──▶ given

The pod manager grants or defers what is asked for; the pod's worker carries out what was promised.
Source: KEP-1287; kubelet `allocation_manager.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from moorage.api.clock import Clock, format_time
from moorage.api.pods import Pod
from moorage.node.pod_facts.events import PodEvents
from moorage.node.pod_facts.labels import Given
from moorage.node.pod_facts.resources import allocated, allocation_of, given_by
from moorage.node.pods.allocations import (
    AllocationRecord,
    Resize,
    ResizeInputs,
    Update,
    is_behind,
    running,
    summary,
    urgency,
)
from moorage.node.runtime.views import ContainerView, PodView, State
from moorage.node.status.resizing import ResizeConditions, is_news
from moorage.wire.client.recorder import NORMAL, WARNING


class _Fit(Enum):
    """How the pod's cgroup compares with the pod's allocation."""

    UNKNOWN = "unknown"
    """It is an earlier agent's."""
    BEHIND = "behind"
    """It is that of an earlier allocation."""
    CURRENT = "current"


class PodResizer:
    """The resize of one pod.

    `pod` is the pod with the resources that it was promised; `is_pending` says whether it asks for
    others.
    """

    def __init__(
        self, pod: Pod, events: PodEvents, clock: Clock, record: AllocationRecord | None
    ) -> None:
        self._asked = pod
        self._events = events
        self._clock = clock
        self._allocation = allocation_of(pod) if record is None else record.allocation
        self._overrides: dict[str, Given] = {} if record is None else dict(record.given)
        self._unsure = frozenset() if record is None else record.unsure
        self._given: Mapping[str, Given] = {}
        self._stopped: frozenset[str] = frozenset()
        self._fit = _Fit.UNKNOWN
        self.conditions = ResizeConditions.reported(pod.status.conditions)
        self.pod = allocated(pod, self._allocation)
        self.is_pending = allocation_of(pod) != self._allocation

    @property
    def asked(self) -> Pod:
        """Return the pod with the resources that it asks for."""
        return self._asked

    @property
    def is_restarting(self) -> bool:
        """Return whether a container was stopped to be started with other resources."""
        return bool(self._stopped)

    @property
    def urgency(self) -> tuple[int, int, int, str]:
        """Return the key by which waiting resizes are sorted."""
        pending = self.conditions.pending
        since = "" if pending is None else pending.last_transition_time or ""
        return urgency(self._asked, self._allocation, since)

    def update(self, pod: Pod) -> None:
        """Store the changed pod object."""
        self._asked = pod
        self.pod = allocated(pod, self._allocation)
        self.is_pending = allocation_of(pod) != self._allocation
        if not self.is_pending:
            self.conditions = self.conditions.not_pending()

    def grant(self) -> None:
        """Promise the requested resources."""
        pod = self.pod = self._asked
        self._allocation = allocation_of(pod)
        self._fit = _Fit.BEHIND
        self.is_pending = False
        generation = pod.metadata.generation
        self.conditions = self.conditions.begun(generation, self._now())
        self._record(NORMAL, "ResizeStarted", summary("Pod resize started", pod, generation))

    def defer(self, reason: str, message: str) -> None:
        """Report that the requested resources cannot be promised now."""
        before, generation = self.conditions.pending, self._asked.metadata.generation
        self.conditions = self.conditions.deferred(reason, message, generation, self._now())
        pending = self.conditions.pending
        if pending is not None and is_news(before, pending):
            text = summary(f"Pod resize {reason}", self._asked, generation, message)
            self._record(WARNING, f"Resize{pending.reason}", text)

    def observe(self, view: PodView, *, is_live: bool) -> None:
        """Compare the containers' resources with the promised ones, and report the end."""
        self._given = {newest.id: self._given_to(newest) for _, newest in running(self.pod, view)}
        if view.containers:
            present = {container.id for container in view.containers}
            self._overrides = {
                id_: given for id_, given in self._overrides.items() if id_ in present
            }
            self._unsure &= present
        ended = {
            container.id
            for container in view.containers
            if container.state is State.EXITED and view.latest(container.name) is container
        }
        self._stopped = frozenset(
            id_ for id_ in self._stopped if id_ in ended or id_ in self._given
        )
        if not is_live:
            self.conditions = ResizeConditions()
            return
        is_unfinished = self._fit is _Fit.BEHIND or self.is_restarting
        if is_unfinished or is_behind(self.pod, view, self._given):
            generation = self.pod.metadata.generation
            self.conditions = self.conditions.going_on(generation, self._now())
        elif self.conditions.in_progress is not None:
            generation = self.conditions.in_progress.observed_generation
            self.conditions = self.conditions.done()
            text = summary("Pod resize completed", self.pod, generation)
            self._record(NORMAL, "ResizeCompleted", text)

    def inputs(self, *, holds_starts: bool) -> ResizeInputs:
        """Return the state that the pod's plan is made from."""
        is_due = self._fit is not _Fit.CURRENT
        return ResizeInputs(
            given=self._given,
            stopped=self._stopped,
            unsure=self._unsure,
            is_due=is_due,
            holds_starts=is_due and holds_starts,
        )

    def given_by_name(self, view: PodView) -> dict[str, Given]:
        """Return the resources of the running containers, by name."""
        return {
            container.name: self._given[newest.id]
            for container, newest in running(self.pod, view)
            if newest.id in self._given
        }

    def record(self) -> AllocationRecord:
        """Return the record for a later agent."""
        return AllocationRecord(self._allocation, dict(self._overrides), self._unsure)

    def stops(self, container: ContainerView) -> None:
        """Note that a container is stopped to be started with other resources."""
        self._stopped |= {container.id}

    def begins(self, resize: Resize) -> None:
        """Note which containers are about to be updated, for an agent that does not see the end."""
        self._unsure |= {update.container.id for update in resize.updates}

    def updated(self, update: Update) -> None:
        """Note that a container has been updated."""
        self._overrides[update.container.id] = update.after
        self._unsure -= {update.container.id}

    def fitted(self, pod: Pod) -> None:
        """Note that the pod's cgroup is that of this pod's resources."""
        if allocation_of(pod) == self._allocation:
            self._fit = _Fit.CURRENT

    def failed(self, message: str) -> None:
        """Report that the promised resources cannot be given now."""
        before, generation = self.conditions.in_progress, self.pod.metadata.generation
        self.conditions = self.conditions.failed(message, generation, self._now())
        after = self.conditions.in_progress
        if after is not None and after != before:
            text = summary("Pod resize error", self.pod, after.observed_generation, message)
            self._record(WARNING, "ResizeError", text)

    def _given_to(self, container: ContainerView) -> Given:
        given = self._overrides.get(container.id) or container.memory.given
        if given is not None:
            return given
        # Created by another agent: as if it had what was promised.
        members = (*self.pod.spec.containers, *self.pod.spec.init_containers)
        return next(
            given_by(self.pod, member) for member in members if member.name == container.name
        )

    def _record(self, type_: str, reason: str, message: str) -> None:
        self._events.pod(self._asked, type_, reason, message)

    def _now(self) -> str:
        return format_time(self._clock.now())
