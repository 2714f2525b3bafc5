"""Pod worker: observes, decides, acts and reports until nothing of the pod is left.

Level-triggered: every wake-up runs the same step, from the pod's spec and the pod's actual state.
Slow actions run as named operations, so the worker itself never blocks on the engine. Source:
kubelet pod workers (sync, terminating, terminated).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from moorage.api.clock import parse_time
from moorage.api.durations import format_duration
from moorage.api.logs import Log
from moorage.api.pods import Pod, PodStatus
from moorage.node.notifier import Notifier
from moorage.node.pod_facts.containers import PENDING, RUNNING, TERMINAL, member
from moorage.node.pod_facts.errors import SyncError, TeardownError
from moorage.node.pod_facts.grace import EVICTION_GRACE_S
from moorage.node.pod_facts.qos import pod_qos_class
from moorage.node.pod_facts.sources import format_pod, is_critical
from moorage.node.pods.actions import PodActions
from moorage.node.pods.allocations import AllocationRecord, Resize
from moorage.node.pods.backoff import RestartBackoff
from moorage.node.pods.context import NodeContext
from moorage.node.pods.lifecycle import (
    CLEAN,
    DELETE,
    DISCARD,
    PREPARE,
    REFRESH,
    RESIZE,
    SANDBOX,
    STOP,
    VOLUMES,
    Action,
    Begin,
    BeginTermination,
    Cancel,
    ClassInputs,
    ClearObstacle,
    Inputs,
    RecordEvent,
    Stage,
    StepAgain,
    StopPod,
    evict,
    initial_state,
    next_step,
)
from moorage.node.pods.operations import Operations
from moorage.node.pods.plan import Kill, NewSandbox, Probed, Reason, Start, needed_sandbox
from moorage.node.pods.resizer import PodResizer
from moorage.node.pods.start_timeline import StartTimeline
from moorage.node.pods.stopping import Replacements
from moorage.node.probes.prober import PodProber
from moorage.node.runtime.views import ContainerView, PodView, SandboxView, State
from moorage.node.status.inputs import StatusInputs, TerminationReason, Waiting
from moorage.node.status.pod import ended, refused, status_of
from moorage.node.volumes.kinds import Mounted
from moorage.runtimeclass import start_phases
from moorage.wire.client.recorder import WARNING

log = Log(__name__)

_DELETE_AGAIN_S = 10.0

Work = Callable[..., Coroutine[Any, Any, None]]


class PodWorker:
    """Runs one pod. `run()` returns when nothing of it is left on this node.

    With `refusal` the pod is only reported as failed. Cancelling leaves the pod running.
    """

    def __init__(
        self,
        pod: Pod,
        context: NodeContext,
        *,
        refusal: TerminationReason | None = None,
        record: AllocationRecord | None = None,
    ) -> None:
        """`record` is what an earlier agent promised the pod; without one, what it asks for."""
        self.uid = pod.metadata.uid
        self._resizer = PodResizer(pod, context.events, context.clock, record)
        self._pod = self._resizer.pod
        self._context = context
        self._clock = context.clock
        self._actions = PodActions(context)
        self._wake = Notifier(context.clock)
        self._operations = Operations(context.clock, self._wake.call)
        self._prober = PodProber(
            context.checks, context.events, context.metrics, context.clock, self._wake.call
        )
        self._backoff = RestartBackoff()
        self._replacements = Replacements(context.clock)
        self._status: PodStatus = pod.status
        self._qos_class = pod_qos_class(pod)
        self._refusal = refusal
        self._on_over: Callable[[], None] = lambda: None
        self._has_room = True
        self._over = asyncio.Event()
        self._state = initial_state(is_refused=refusal is not None)
        self._is_removed = False
        self._succeeded: set[str] = set()
        self._mounted: Mounted | None = None
        self._waiting: dict[str, Waiting] = {}
        self._released: set[str] = set()
        self._obstacle: Waiting | None = None
        self._held_s = 0.0
        """For how long the status is not reported."""
        self._first_seen_s = context.clock.monotonic()
        self._timeline = StartTimeline(pod, context.clock)
        self._work: dict[str, Work] = {
            PREPARE: self._prepare,
            VOLUMES: self._mount,
            REFRESH: self._refresh,
            CLEAN: self._clean,
            DELETE: self._delete,
            DISCARD: self._discard,
        }
        self._adopt()

    @property
    def pod(self) -> Pod:
        """Return the pod with the resources that it was promised."""
        return self._pod

    @property
    def resizer(self) -> PodResizer:
        """Return the pod's requests, beside the promised resources."""
        return self._resizer

    @property
    def wants_resize(self) -> bool:
        """Return whether a live pod asks for other resources than it was promised."""
        return self._state.is_live and self._refusal is None and self._resizer.is_pending

    def on_over(self, listener: Callable[[], None]) -> None:
        """Call a function when the pod no longer counts against the node's resources."""
        self._on_over = listener

    @property
    def is_waiting(self) -> bool:
        """Return whether the pod waits for room, and uses none of the node's resources yet."""
        return not self._has_room and self._state.stage is Stage.PREPARING

    def wait_for_room(self, why: TerminationReason) -> None:
        """Begin nothing until `grant_room`; report the reason."""
        self._has_room = False
        self._obstacle = Waiting(
            "WaitingForRoom",
            f"waiting for pods that have ended to be removed from the node: {why.message}",
        )
        self._wake.call()

    def grant_room(self) -> None:
        """Begin a pod that waits for room."""
        self._has_room = True
        self._obstacle = None
        self._wake.call()

    def grant_resize(self) -> None:
        """Promise the pod its requests, and begin to carry them out."""
        self._resizer.grant()
        self._pod = self._resizer.pod
        self._operations.retry_now(RESIZE)
        self._wake.call()

    def defer_resize(self, why: TerminationReason) -> None:
        """Report why the node cannot grant the pod's requests."""
        self._resizer.defer(why.reason, why.message)
        self._wake.call()

    @property
    def status(self) -> PodStatus:
        """Return the latest computed status."""
        return self._status

    @property
    def is_active(self) -> bool:
        """Return whether the pod counts against the node's resources."""
        return not self._state.is_over

    @property
    def is_shown(self) -> bool:
        """Return whether the API shows the pod on this node as not ended: the scheduler counts it.

        A pod that is active and not shown has ended, or was removed by force, and is being stopped.
        """
        phases = (self._pod.status.phase, self._status.phase)
        return self.is_active and not self._is_removed and TERMINAL.isdisjoint(phases)

    @property
    def is_live(self) -> bool:
        """Return whether the pod was admitted and its termination has not begun."""
        return self._state.is_live and self._state.termination is None

    async def wait_over(self) -> None:
        """Block until the pod uses none of the node's resources."""
        await self._over.wait()

    def update(self, pod: Pod) -> None:
        """Store the changed pod object, and wake the worker."""
        before = self._pod
        self._resizer.update(pod)
        self._pod = self._resizer.pod
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

    def evict(
        self,
        termination: TerminationReason,
        *,
        grace_s: int = EVICTION_GRACE_S,
        annotations: Mapping[str, str] | None = None,
    ) -> bool:
        """Evict the pod; return False when it is terminating already, or critical.

        `grace_s` shortens its grace period; `annotations` are those of the event.
        """
        if is_critical(self._pod) or not self.terminate(termination, grace_s=grace_s):
            return False
        self._context.events.pod(
            self._pod, WARNING, termination.reason, termination.message, annotations
        )
        return True

    def terminate(self, termination: TerminationReason, *, grace_s: int) -> bool:
        """End the pod, a critical one too; return False when it is terminating already.

        `grace_s` shortens its grace period.
        """
        state = evict(self._state, termination, grace_s)
        if state is None:
            return False
        self._state = state
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
                while self._step(tasks):
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

    def _step(self, tasks: asyncio.TaskGroup) -> bool:
        """Observe, decide, act, report; return whether anything of the pod is left."""
        self._operations.begin_step()
        view = self._context.observer.view(self.uid)
        self._resizer.observe(view, is_live=self._state.is_live and self._refusal is None)
        step = next_step(self._state, self._inputs(view))
        was_active = self.is_active
        self._state = step.state
        if was_active and not self.is_active:
            self._on_over()
        if not self.is_active:
            self._over.set()
        self._succeeded.clear()
        if step.state.stage is Stage.DISCARDED:
            return False
        for action in step.actions:
            self._act(action, view, tasks)
        self._probe(view, tasks)
        self._report(view)
        return True

    def _inputs(self, view: PodView) -> Inputs:
        return Inputs(
            pod=self._pod,
            view=view,
            probed=self._probed(),
            running=self._operations.names,
            succeeded=frozenset(self._succeeded),
            is_removed=self._is_removed,
            is_mounted=self._mounted is not None,
            has_room=self._has_room,
            deadline_left_s=self._deadline_s(),
            runtime_class=self._class_inputs(view),
            resizing=self._resizer.inputs(
                holds_starts=RESIZE in self._operations or self._operations.may_start(RESIZE)
            ),
        )

    def _class_inputs(self, view: PodView) -> ClassInputs | None:
        if view.sandbox is None:
            return None
        classes = self._context.classes
        handler = classes.known_handler(self._pod, view)
        if handler is None:
            return None
        return ClassInputs(
            node_name=self._context.options.name,
            handler=handler,
            is_gone=classes.is_gone(self._pod),
            replacing_handler=classes.replacing_handler(self._pod, handler),
        )

    def _act(self, action: Action, view: PodView, tasks: asyncio.TaskGroup) -> None:
        match action:
            case Begin(operation):
                self._begin(tasks, operation, self._work[operation])
            case NewSandbox():
                self._begin(tasks, SANDBOX, self._create_sandbox, view, action)
            case Start():
                self._consider(tasks, action, view)
            case Kill():
                self._begin(tasks, f"kill:{action.container.name}", self._kill, action)
            case Resize():
                self._begin(tasks, RESIZE, self._resize, view, action)
            case StopPod(grace_s):
                self._begin(tasks, STOP, self._stop, view, grace_s)
            case Cancel(operations):
                self._operations.cancel(operations)
            case RecordEvent():
                self._context.events.pod(self._pod, action.type, action.reason, action.message)
            case BeginTermination():
                self._obstacle = None
                self._prober.stop_all_but_readiness()
                log.info("pod ends", pod=format_pod(self._pod), alive=len(view.alive))
            case ClearObstacle():
                self._obstacle = None
            case StepAgain():
                self._wake.call()

    def _pause_s(self) -> float | None:
        """Return seconds until the next step without a wake-up; None for no timeout."""
        pauses = (self._operations.next_due_s(), self._deadline_s(), self._held_s or None)
        return min((pause for pause in pauses if pause is not None), default=None)

    # Container operations

    def _consider(self, tasks: asyncio.TaskGroup, start: Start, view: PodView) -> None:
        """Start a container unless an earlier failure delays it."""
        name, sandbox, volumes = _start_name(start.name), view.sandbox, self._mounted
        if sandbox is None or volumes is None or not self._operations.may_start(name):
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
        where, name = format_pod(self._pod), before.name
        self._waiting[name] = Waiting(
            "CrashLoopBackOff",
            f"back-off {format_duration(pause_s)} restarting failed container={name} pod={where}",
        )
        spec_container = member(self._pod.spec, name)
        if spec_container is not None:
            message = f"Back-off restarting failed container {name} in pod {where}"
            self._context.events.container(self._pod, spec_container, WARNING, "BackOff", message)
        due_s = self._clock.monotonic() + ready_s - now_s
        self._operations.postpone(_start_name(name), due_s)
        return True

    def _present_ids(self) -> set[str]:
        return {container.id for container in self._context.observer.view(self.uid).containers}

    async def _start(
        self, start: Start, view: PodView, sandbox: SandboxView, volumes: Mounted
    ) -> None:
        name, container = _start_name(start.name), member(self._pod.spec, start.name)
        if container is None:
            return
        try:
            await self._actions.start(self._pod, container, view, sandbox, volumes, self._timeline)
        except SyncError as error:
            self._waiting[start.name] = Waiting(error.reason, error.message)
            self._operations.failed(name, retry_s=error.retry_s)
        else:
            self._waiting.pop(start.name, None)
            self._operations.succeeded(name)

    async def _kill(self, kill: Kill) -> None:
        is_resize = kill.reason is Reason.RESIZE
        if kill.reason is Reason.CHANGED:
            self._replacements.begin(kill.container)
        if is_resize:
            self._resizer.stops(kill.container)
        name = f"kill:{kill.container.name}"
        if await self._attempt(name, self._actions.kill(self._pod, kill)) and is_resize:
            # A resize is no crash: the container starts again without a pause.
            self._released = {kill.container.id, *(self._released & self._present_ids())}

    async def _resize(self, view: PodView, resize: Resize) -> None:
        resizer, actions, pod = self._resizer, self._actions, self._pod
        resizer.begins(resize)
        try:
            await actions.save(pod, resizer.record())
            await actions.resize(pod, view, resize, resizer.updated)
            await actions.save(pod, resizer.record())
        except SyncError as error:
            resizer.failed(error.message)
            self._operations.failed(RESIZE)
            log.warning("pod not resized", pod=format_pod(pod), error=error)
        else:
            resizer.fitted(pod)
            self._operations.succeeded(RESIZE)

    # Pod operations

    async def _prepare(self) -> None:
        await self._attempt(PREPARE, self._prepare_pod(self._pod))

    async def _prepare_pod(self, pod: Pod) -> None:
        if await self._actions.prepare(pod, self._resizer.record()):
            self._resizer.fitted(pod)

    async def _mount(self) -> None:
        try:
            with self._timeline.step(start_phases.VOLUMES):
                self._mounted = await self._actions.mount(self._pod)
        except SyncError as error:
            self._block(VOLUMES, error)
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

    async def _create_sandbox(self, view: PodView, wanted: NewSandbox) -> None:
        self._timeline.begin(start_phases.SANDBOX)
        if await self._attempt(SANDBOX, self._actions.replace_sandbox(self._pod, view, wanted)):
            self._timeline.end(start_phases.SANDBOX)

    async def _stop(self, view: PodView, grace_s: int) -> None:
        await self._attempt(STOP, self._actions.stop(self._pod, view, grace_s))

    async def _clean(self) -> None:
        await self._attempt(CLEAN, self._actions.clean(self._pod))
        self._mounted = None

    async def _delete(self) -> None:
        if await self._attempt(DELETE, self._actions.delete(self._pod)):
            # The watch reports the removal; a finalizer may delay it.
            self._operations.postpone(DELETE, self._clock.monotonic() + _DELETE_AGAIN_S)

    async def _discard(self) -> None:
        await self._attempt(DISCARD, self._actions.discard(self._pod))

    async def _attempt(self, name: str, action: Coroutine[Any, Any, None]) -> bool:
        """Run an action; return whether it succeeded. A failure is recorded and retried."""
        try:
            await action
        except SyncError as error:
            self._block(name, error)
            return False
        except TeardownError as error:
            log.warning("not done", pod=format_pod(self._pod), operation=name, error=error)
            self._operations.failed(name)
            return False
        self._operations.succeeded(name)
        self._succeeded.add(name)
        return True

    def _begin(self, tasks: asyncio.TaskGroup, name: str, work: Work, *args: Any) -> None:
        """Start an operation if its name is not busy and it is due."""
        if self._operations.may_start(name):
            self._operations.start(name, work(*args), tasks)

    def _block(self, name: str, error: SyncError) -> None:
        self._obstacle = Waiting(error.reason, str(error))
        self._operations.failed(name)
        log.warning("pod hindered", pod=format_pod(self._pod), reason=error.reason, error=error)

    def _deadline_s(self) -> float | None:
        """Return the remaining active seconds of the pod; None without a deadline."""
        limit_s, started = self._pod.spec.active_deadline_seconds, self._status.start_time
        if limit_s is None or started is None or not self._state.is_live:
            return None
        end_s = parse_time(started).timestamp() + limit_s
        return end_s - self._clock.now().timestamp()

    # Probes and status

    def _adopt(self) -> None:
        """Restore the started containers that an earlier agent reported."""
        status = self._pod.status
        for container_status in (*status.container_statuses, *status.init_container_statuses):
            if container_status.started and container_status.state.running is not None:
                self._prober.adopt(container_status.container_id.rpartition("//")[2])

    def _probe(self, view: PodView, tasks: asyncio.TaskGroup) -> None:
        if self._state.is_over:
            self._prober.stop()
            return
        address = view.ips[0] if view.ips else self._context.host_ips[0]
        self._prober.follow(self._pod, view, address, tasks)

    def _probed(self) -> Probed:
        verdicts = self._prober.verdicts
        return Probed(liveness=verdicts.liveness, startup=verdicts.startup)

    def _report(self, view: PodView) -> None:
        if self._state.is_live and self._refusal is None:
            self._held_s = self._replacements.left_s(view)
            if self._held_s > 0:
                return
        self._held_s = 0.0
        known = self._status_inputs(view)
        if self._refusal is not None:
            status = refused(known, self._refusal)
        elif self._state.is_over:
            status = ended(status_of(known), known)
        else:
            status = status_of(known)
        if status.phase == RUNNING and self._status.phase in ("", PENDING):
            spent_s = self._clock.monotonic() - self._first_seen_s
            self._context.metrics.pod_start.observe(spent_s)
        status = self._timeline.with_condition(self._pod, status)
        self._measure_start(view)
        self._status = status
        if not self._is_removed:
            self._context.writer.submit(self._pod, status)

    def _measure_start(self, view: PodView) -> None:
        """Count the phases of the pod's start, once it is over."""
        context = self._context
        milliseconds = self._timeline.take()
        if milliseconds:
            name = context.classes.named_by(self._pod) or ""
            handler = context.classes.known_handler(self._pod, view) or ""
            context.metrics.count_start(name, handler, milliseconds)

    def _status_inputs(self, view: PodView) -> StatusInputs:
        serves = needed_sandbox(self._pod.spec, view) is None
        return StatusInputs(
            pod=self._pod,
            before=self._status,
            view=view,
            engine=self._context.health.engine_name,
            now=self._clock.now(),
            host_ips=self._context.host_ips,
            qos_class=self._qos_class,
            waiting=self._waiting,
            verdicts=self._prober.verdicts,
            is_ready_to_start=serves and self._mounted is not None,
            obstacle=self._obstacle,
            is_final=self._state.is_final,
            termination=self._state.termination,
            has_recursive_read_only=self._actions.has_recursive_read_only(self._pod, view),
            given=self._resizer.given_by_name(view),
            resize=self._resizer.conditions,
            is_restarting=self._resizer.is_restarting,
        )


def _start_name(container: str) -> str:
    return f"start:{container}"
