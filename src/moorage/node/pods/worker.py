"""Pod worker: observes, decides, acts and reports until nothing of the pod is left.

Level-triggered: every wake-up runs the same step, from the pod's spec and the pod's actual state.
Slow actions run as named operations, so the worker itself never blocks on the engine. Source:
kubelet pod workers (sync, terminating, terminated).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any

from moorage.api.clock import parse_time
from moorage.api.logs import Log
from moorage.api.pods import Pod, PodStatus
from moorage.client.recorder import NORMAL, WARNING
from moorage.node.notifier import Notifier
from moorage.node.pod_facts.containers import member
from moorage.node.pod_facts.durations import spoken_seconds
from moorage.node.pod_facts.grace import grace_period_s
from moorage.node.pod_facts.phases import PENDING, RUNNING, TERMINAL
from moorage.node.pod_facts.qos import quality
from moorage.node.pod_facts.references import described
from moorage.node.pods.actions import HinderedError, PodActions, UnfinishedError
from moorage.node.pods.backoff import RestartBackoff
from moorage.node.pods.context import NodeContext
from moorage.node.pods.operations import Operations
from moorage.node.pods.plan import Kill, NewSandbox, Probed, Start, decide, needed_sandbox
from moorage.node.pods.starting import StartError
from moorage.node.pods.stopping import MINIMUM_GRACE_S
from moorage.node.probes.prober import PodProber
from moorage.node.runtime.views import ContainerView, PodView, SandboxView, State
from moorage.node.status.inputs import StatusInputs, TerminationReason, Waiting
from moorage.node.status.pod import ended, refused, status_of
from moorage.node.volumes.pod_volumes import Mounted

log = Log(__name__)

PREPARE = "prepare"
SANDBOX = "sandbox"
VOLUMES = "volumes"
REFRESH = "refresh"
STOP = "stop"
CLEAN = "clean"
DELETE = "delete"
DISCARD = "discard"

_DELETE_AGAIN_S = 10.0
_DEADLINE = TerminationReason(
    "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
)

Work = Callable[..., Coroutine[Any, Any, None]]


class Stage(Enum):
    """Stage of a pod's lifecycle."""

    LIVE = "live"
    ENDING = "ending"
    ENDED = "ended"


class PodWorker:
    """Runs one pod. `run()` returns when nothing of it is left on this node.

    With `refusal` the pod is only reported as failed. Cancelling leaves the pod running.
    """

    def __init__(
        self, pod: Pod, context: NodeContext, *, refusal: TerminationReason | None = None
    ) -> None:
        self.uid = pod.metadata.uid
        self._pod = pod
        self._context = context
        self._clock = context.clock
        self._actions = PodActions(context)
        self._wake = Notifier(context.clock)
        self._operations = Operations(context.clock, self._wake.call)
        self._prober = PodProber(
            context.checks, context.events, context.metrics, context.clock, self._wake.call
        )
        self._backoff = RestartBackoff()
        self._status: PodStatus = pod.status
        self._quality = quality(pod)
        self._refusal = refusal
        self._termination: TerminationReason | None = None
        self._stage = Stage.LIVE if refusal is None else Stage.ENDED
        self._is_removed = False
        self._is_prepared = False
        self._is_over = False
        self._is_stopped = refusal is not None
        self._is_clean = refusal is not None
        self._is_discarded = False
        self._mounted: Mounted | None = None
        self._waiting: dict[str, Waiting] = {}
        self._released: set[str] = set()
        self._obstacle: Waiting | None = None
        self._has_told_class_gone = False
        self._replacing_handler: str | None = None
        self._stop_grace_s = 0
        self._first_seen_s = context.clock.monotonic()
        self._adopt()

    @property
    def pod(self) -> Pod:
        return self._pod

    @property
    def status(self) -> PodStatus:
        """Return the latest computed status."""
        return self._status

    @property
    def is_active(self) -> bool:
        """Return whether the pod counts against the node's resources."""
        return self._stage is not Stage.ENDED

    def update(self, pod: Pod) -> None:
        """Store the changed pod object, and wake the worker."""
        before, self._pod = self._pod, pod
        self._context.writer.seen(pod)
        if before.metadata.labels != pod.metadata.labels or (
            before.metadata.annotations != pod.metadata.annotations
        ):
            self._operations.retry_now(REFRESH)
        self._wake.call()

    def remove(self) -> None:
        """Mark the pod object as deleted: the pod is stopped with the minimum grace period."""
        self._is_removed = True
        self._wake.call()

    def evict(self, termination: TerminationReason) -> bool:
        """Evict the pod; return False when it is terminating already."""
        if self._stage is not Stage.LIVE or self._termination is not None:
            return False
        self._termination = termination
        self._context.events.pod(self._pod, WARNING, termination.reason, termination.message)
        self._wake.call()
        return True

    def wake(self) -> None:
        """Run a step, after a change that concerns the pod."""
        self._wake.call()

    def retry_sandbox(self) -> None:
        """Retry the sandbox at once, after a change of the class, the handlers or the engine."""
        self._operations.retry_now(SANDBOX)
        self._wake.call()

    async def run(self) -> None:
        """Run the pod until nothing of it is left on this node."""
        context = self._context
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(context.writer.write(self._pod))
            try:
                while not self._is_discarded:
                    self._step(tasks)
                    await self._wake.wait(self._pause_s())
            finally:
                self._prober.stop()
                self._operations.cancel(self._operations.names)
                writing.cancel()
        context.writer.forget(self.uid)
        context.images.forget(self.uid)
        context.classes.forget(self.uid)
        context.metrics.probes.forget(pod_uid=self.uid)

    # The step

    def _step(self, tasks: asyncio.TaskGroup) -> None:
        self._operations.look()
        view = self._context.observer.view(self.uid)
        self._choose_stage(view)
        match self._stage:
            case Stage.LIVE:
                self._live(view, tasks)
            case Stage.ENDING:
                self._end(view, tasks)
            case Stage.ENDED:
                self._finish(view, tasks)
        self._probe(view, tasks)
        self._report(view)

    def _choose_stage(self, view: PodView) -> None:
        if self._stage is not Stage.LIVE:
            return
        left_s = self._deadline_s()
        if self._termination is None and left_s is not None and left_s <= 0:
            self._termination = _DEADLINE
            self._context.events.pod(self._pod, NORMAL, _DEADLINE.reason, _DEADLINE.message)
        must_end = (
            self._is_removed
            or self._is_over
            or self._termination is not None
            or self._pod.metadata.deletion_timestamp is not None
            or self._pod.status.phase in TERMINAL
        )
        if must_end:
            self._stage = Stage.ENDING
            self._obstacle = None
            self._prober.spare_the_dying()
            log.info("pod ends", pod=described(self._pod), alive=len(view.alive))

    def _live(self, view: PodView, tasks: asyncio.TaskGroup) -> None:
        if not self._is_prepared:
            self._begin(tasks, PREPARE, self._prepare)
            return
        if self._mounted is None:
            self._begin(tasks, VOLUMES, self._mount)
        else:
            self._begin(tasks, REFRESH, self._refresh)
        self._tell_if_class_is_gone(view)
        if SANDBOX in self._operations:
            return
        plan = decide(self._pod, view, self._probed(), self._busy())
        if plan.is_over:
            self._is_over = True
            self._wake.call()
        elif plan.sandbox is not None:
            self._begin(tasks, SANDBOX, self._make_sandbox, view, plan.sandbox)
        elif self._mounted is not None:
            self._obstacle = None
            for kill in plan.kill:
                self._begin(tasks, f"kill:{kill.container.name}", self._kill, kill)
            for start in plan.start:
                self._consider(tasks, start, view, self._mounted)

    def _end(self, view: PodView, tasks: asyncio.TaskGroup) -> None:
        under_way = self._operations.names - {STOP, CLEAN}
        if under_way:
            self._operations.cancel(under_way)
        elif not self._is_stopped:
            self._stop_within(tasks, view, self._grace_s())
        elif not self._is_clean:
            self._begin(tasks, CLEAN, self._clean)
        else:
            self._stage = Stage.ENDED
            self._finish(view, tasks)

    def _stop_within(self, tasks: asyncio.TaskGroup, view: PodView, grace_s: int) -> None:
        if STOP in self._operations:
            if grace_s < self._stop_grace_s:
                # The grace period was shortened: stop again with less time.
                self._operations.cancel({STOP})
            return
        self._stop_grace_s = grace_s
        self._begin(tasks, STOP, self._stop, view, grace_s)

    def _finish(self, view: PodView, tasks: asyncio.TaskGroup) -> None:
        if not view.is_stopped and self._refusal is None:
            # The engine completed an operation after it was cancelled.
            self._stage, self._is_stopped, self._is_clean = Stage.ENDING, False, False
            self._wake.call()
        elif self._is_removed:
            self._begin(tasks, DISCARD, self._discard)
        elif self._pod.metadata.deletion_timestamp is not None:
            self._begin(tasks, DELETE, self._delete)

    def _pause_s(self) -> float | None:
        """Return seconds until the next step without a wake-up; None for no timeout."""
        pauses = (self._operations.next_due_s(), self._deadline_s())
        return min((each for each in pauses if each is not None), default=None)

    # Container operations

    def _consider(
        self, tasks: asyncio.TaskGroup, start: Start, view: PodView, volumes: Mounted
    ) -> None:
        """Start a container unless an earlier failure delays it."""
        name, sandbox = _start_name(start.name), view.sandbox
        if sandbox is None or not self._operations.may_start(name):
            return
        before = view.latest(start.name)
        if before is not None and before.state is State.EXITED and self._must_wait(before):
            return
        self._begin(tasks, name, self._start, start, view, sandbox, volumes)

    def _must_wait(self, before: ContainerView) -> bool:
        """Return whether the container is in its restart backoff.

        Reports the backoff in status and event.
        """
        if before.id in self._released:
            return False
        now_s, pause_s = self._clock.now().timestamp(), self._backoff.pause_s(before)
        ready_s = self._backoff.ready_s(before)
        if pause_s == 0 or now_s >= ready_s:
            self._backoff.restarted(before, now_s)
            self._released = {before.id, *(self._released & self._present_ids())}
            return False
        where, name = described(self._pod), before.name
        self._waiting[name] = Waiting(
            "CrashLoopBackOff",
            f"back-off {spoken_seconds(pause_s)} restarting failed container={name} pod={where}",
        )
        found = member(self._pod.spec, name)
        if found is not None:
            message = f"Back-off restarting failed container {name} in pod {where}"
            self._context.events.about(self._pod, found, WARNING, "BackOff", message)
        due_s = self._clock.monotonic() + ready_s - now_s
        self._operations.postpone(_start_name(name), due_s)
        return True

    def _present_ids(self) -> set[str]:
        return {each.id for each in self._context.observer.view(self.uid).containers}

    async def _start(
        self, start: Start, view: PodView, sandbox: SandboxView, volumes: Mounted
    ) -> None:
        name, found = _start_name(start.name), member(self._pod.spec, start.name)
        if found is None:
            return
        try:
            await self._actions.start(self._pod, found, view, sandbox, volumes)
        except StartError as error:
            self._waiting[start.name] = Waiting(error.reason, error.message)
            self._operations.failed(name, retry_s=error.retry_s)
        else:
            self._waiting.pop(start.name, None)
            self._operations.succeeded(name)

    async def _kill(self, kill: Kill) -> None:
        await self._attempt(f"kill:{kill.container.name}", self._actions.kill(self._pod, kill))

    # Pod operations

    async def _prepare(self) -> None:
        self._is_prepared = await self._attempt(PREPARE, self._actions.prepare(self._pod))

    async def _mount(self) -> None:
        try:
            self._mounted = await self._actions.mount(self._pod)
        except HinderedError as error:
            self._hinder(VOLUMES, error)
            return
        self._operations.succeeded(VOLUMES)
        self._postpone_refresh()

    async def _refresh(self) -> None:
        await self._actions.refresh(self._pod)
        self._postpone_refresh()

    def _postpone_refresh(self) -> None:
        pause_s = self._context.volumes.refresh_due_s(self._pod)
        until_s = float("inf") if pause_s is None else self._clock.monotonic() + pause_s
        self._operations.postpone(REFRESH, until_s)

    async def _make_sandbox(self, view: PodView, wanted: NewSandbox) -> None:
        making = self._actions.replace_sandbox(self._pod, view, wanted)
        await self._attempt(SANDBOX, making)

    async def _stop(self, view: PodView, grace_s: int) -> None:
        stopping = self._actions.stop(self._pod, view, grace_s)
        self._is_stopped = await self._attempt(STOP, stopping)

    async def _clean(self) -> None:
        self._is_clean = await self._attempt(CLEAN, self._actions.clean(self._pod))
        self._mounted = None

    async def _delete(self) -> None:
        if await self._attempt(DELETE, self._actions.delete(self._pod)):
            # The watch reports the removal; a finalizer may delay it.
            self._operations.postpone(DELETE, self._clock.monotonic() + _DELETE_AGAIN_S)

    async def _discard(self) -> None:
        self._is_discarded = await self._attempt(DISCARD, self._actions.discard(self._pod))

    async def _attempt(self, name: str, action: Coroutine[Any, Any, None]) -> bool:
        """Run an action; return whether it succeeded. A failure is recorded and retried."""
        try:
            await action
        except HinderedError as error:
            self._hinder(name, error)
            return False
        except UnfinishedError as error:
            log.warning("not done", pod=described(self._pod), operation=name, error=error)
            self._operations.failed(name)
            return False
        self._operations.succeeded(name)
        return True

    def _begin(self, tasks: asyncio.TaskGroup, name: str, work: Work, *args: Any) -> None:
        """Start an operation if its name is not busy and it is due."""
        if self._operations.may_start(name):
            self._operations.start(name, work(*args), tasks)

    def _hinder(self, name: str, error: HinderedError) -> None:
        self._obstacle = Waiting(error.reason, str(error))
        self._operations.failed(name)
        log.warning("pod hindered", pod=described(self._pod), reason=error.reason, error=error)

    def _tell_if_class_is_gone(self, view: PodView) -> None:
        """Record an event, once, when the class of a running pod has been deleted."""
        if view.sandbox is None:
            return
        classes = self._context.classes
        handler = classes.known_handler(self._pod, view)
        if handler is None:
            return
        self._report_replaced_class(handler)
        if not self._has_told_class_gone and classes.is_gone(self._pod):
            self._has_told_class_gone = True
            self._context.events.pod(
                self._pod, WARNING, "RuntimeClassGone",
                f'RuntimeClass "{self._pod.spec.runtime_class_name}" does not exist any more: this '
                f'pod goes on under handler "{handler}" on node '
                f"{self._context.options.name}, but no new pod can name the class until it is "
                "created again",
            )  # fmt: skip

    def _report_replaced_class(self, handler: str) -> None:
        """Record an event, once, when the pod's class was created again with another handler."""
        other = self._context.classes.replacing_handler(self._pod, handler)
        if other is None or other == self._replacing_handler:
            return
        self._replacing_handler = other
        self._context.events.pod(
            self._pod, WARNING, "RuntimeClassReplaced",
            f'RuntimeClass "{self._pod.spec.runtime_class_name}" names handler "{other}" now: this '
            f'pod stays under handler "{handler}", with which it was admitted; delete it to use '
            "the other",
        )  # fmt: skip

    def _grace_s(self) -> int:
        return MINIMUM_GRACE_S if self._is_removed else grace_period_s(self._pod)

    def _deadline_s(self) -> float | None:
        """Return the remaining active seconds of the pod; None without a deadline."""
        limit_s, started = self._pod.spec.active_deadline_seconds, self._status.start_time
        if limit_s is None or started is None or self._stage is not Stage.LIVE:
            return None
        end_s = parse_time(started).timestamp() + limit_s
        return end_s - self._clock.now().timestamp()

    # Probes and status

    def _adopt(self) -> None:
        """Restore the started containers that an earlier agent reported."""
        status = self._pod.status
        for each in (*status.container_statuses, *status.init_container_statuses):
            if each.started and each.state.running is not None:
                self._prober.adopt(each.container_id.rpartition("//")[2])

    def _probe(self, view: PodView, tasks: asyncio.TaskGroup) -> None:
        if self._stage is Stage.ENDED:
            self._prober.stop()
            return
        address = view.ips[0] if view.ips else self._context.host_ips[0]
        self._prober.follow(self._pod, view, address, tasks)

    def _probed(self) -> Probed:
        verdicts = self._prober.verdicts
        return Probed(liveness=verdicts.liveness, startup=verdicts.startup)

    def _busy(self) -> frozenset[str]:
        """Return the names of containers with an operation in progress."""
        parts = (name.partition(":") for name in self._operations.names)
        return frozenset(container for _, colon, container in parts if colon)

    def _report(self, view: PodView) -> None:
        known = self._known(view)
        if self._refusal is not None:
            status = refused(known, self._refusal)
        elif self._stage is Stage.ENDED:
            status = ended(status_of(known), known)
        else:
            status = status_of(known)
        if status.phase == RUNNING and self._status.phase in ("", PENDING):
            spent_s = self._clock.monotonic() - self._first_seen_s
            self._context.metrics.pod_start.observe(spent_s)
        self._status = status
        if not self._is_removed:
            self._context.writer.submit(self._pod, status)

    def _known(self, view: PodView) -> StatusInputs:
        serves = needed_sandbox(self._pod.spec, view) is None
        return StatusInputs(
            pod=self._pod,
            before=self._status,
            view=view,
            engine=self._context.health.engine_name,
            now=self._clock.now(),
            host_ips=self._context.host_ips,
            quality=self._quality,
            waiting=self._waiting,
            verdicts=self._prober.verdicts,
            is_ready_to_start=serves and self._mounted is not None,
            obstacle=self._obstacle,
            is_final=self._stage is not Stage.LIVE or self._is_over,
            termination=self._termination,
            has_recursive_read_only=self._actions.has_recursive_read_only(self._pod, view),
        )


def _start_name(container: str) -> str:
    return f"start:{container}"
