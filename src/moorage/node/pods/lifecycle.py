"""Pod lifecycle: the state machine of one pod, pure.

`next_step` returns the next state and the actions to take, from the state and the inputs of one
moment; the worker gathers the inputs and carries out the actions. Called again after every change:
actions that are in progress, or wait for their retry, may be repeated without effect.

    PREPARING ──▶ SYNCING ──▶ COMPLETED ──▶ STOPPING ──▶ CLEANING ──▶ TERMINATED ──▶ DISCARDED
        └────────────┴─── termination ────────▲ └────── runs again ◀──────┘ REFUSED ─────▲

Source: kubelet pod workers (`SyncPod`, `SyncTerminatingPod`, `SyncTerminatedPod`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from moorage.api.pods import Pod
from moorage.node.pod_facts.containers import TERMINAL
from moorage.node.pod_facts.grace import MINIMUM_GRACE_S, grace_period_s
from moorage.node.pods.allocations import Resize, ResizeInputs
from moorage.node.pods.plan import Kill, NewSandbox, Probed, Start, decide
from moorage.node.runtime.views import PodView
from moorage.node.status.inputs import TerminationReason
from moorage.wire.client.recorder import NORMAL, WARNING

PREPARE = "prepare"
SANDBOX = "sandbox"
VOLUMES = "volumes"
REFRESH = "refresh"
RESIZE = "resize"
STOP = "stop"
CLEAN = "clean"
DELETE = "delete"
DISCARD = "discard"

DEADLINE = TerminationReason(
    "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
)


class Stage(Enum):
    """Stage of a pod's lifecycle on this node."""

    REFUSED = "refused"
    """Not admitted: it is only reported as failed."""
    PREPARING = "preparing"
    """Its directories and its cgroup are being created."""
    SYNCING = "syncing"
    """Volumes, sandbox and containers are brought to what the spec wants."""
    COMPLETED = "completed"
    """None of its containers will run again."""
    STOPPING = "stopping"
    """Its operations are cancelled, its containers and sandboxes stopped."""
    CLEANING = "cleaning"
    """Its volumes and its cgroup are being removed."""
    TERMINATED = "terminated"
    """Nothing of it runs; its records stay until its object is deleted."""
    DISCARDED = "discarded"
    """Nothing of it is left."""


LIVE = frozenset({Stage.PREPARING, Stage.SYNCING, Stage.COMPLETED})
OVER = frozenset({Stage.REFUSED, Stage.TERMINATED, Stage.DISCARDED})
"""Stages in which the pod uses none of the node's resources."""

_AFTER = {
    (Stage.PREPARING, PREPARE): Stage.SYNCING,
    (Stage.STOPPING, STOP): Stage.CLEANING,
    (Stage.CLEANING, CLEAN): Stage.TERMINATED,
    (Stage.TERMINATED, DISCARD): Stage.DISCARDED,
    (Stage.REFUSED, DISCARD): Stage.DISCARDED,
}
"""(Stage, operation that has succeeded) → next stage."""


@dataclass(frozen=True, slots=True)
class PodState:
    """State of one pod.

    `termination` is why the whole pod fails; `eviction_grace_s` shortens its grace period.
    `stop_grace_s` is the grace period of the latest stop. The last two record which events about
    the pod's class have been recorded.
    """

    stage: Stage = Stage.PREPARING
    termination: TerminationReason | None = None
    eviction_grace_s: int | None = None
    stop_grace_s: int = 0
    has_reported_class_gone: bool = False
    reported_replacing_handler: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether termination has not begun."""
        return self.stage in LIVE

    @property
    def is_over(self) -> bool:
        """Whether the pod uses none of the node's resources."""
        return self.stage in OVER

    @property
    def is_final(self) -> bool:
        """Whether no container of the pod will run again."""
        return self.stage not in (Stage.PREPARING, Stage.SYNCING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassInputs:
    """The RuntimeClass of a pod with a sandbox, as the node knows it.

    `handler` is the pod's; `replacing_handler` that of the class, if it is another one.
    """

    node_name: str
    handler: str
    is_gone: bool
    replacing_handler: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Inputs of one step.

    `running` are the names of the operations in progress, cancelled ones included; `succeeded`
    those that have succeeded since the last step. `is_removed` means that the pod's object is gone.
    `deadline_left_s` is the remaining active time; None without a deadline. `runtime_class` is None
    as long as the pod's handler is not known. Without `has_room` the pod waits for others to end.
    """

    pod: Pod
    view: PodView
    probed: Probed = field(default_factory=Probed)
    running: frozenset[str] = frozenset()
    succeeded: frozenset[str] = frozenset()
    is_removed: bool = False
    is_mounted: bool = False
    has_room: bool = True
    deadline_left_s: float | None = None
    runtime_class: ClassInputs | None = None
    resizing: ResizeInputs = field(default_factory=ResizeInputs)


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin the operation of this name, unless it runs or waits for its retry."""

    operation: str


@dataclass(frozen=True, slots=True)
class StopPod:
    """Begin to stop the whole pod within a grace period."""

    grace_s: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel operations."""

    operations: frozenset[str]


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Record an event about the pod."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class BeginTermination:
    """Log that termination begins; drop what blocks the pod, and its liveness probes."""


@dataclass(frozen=True, slots=True)
class ClearObstacle:
    """Drop what blocks the pod: its sandbox and its volumes are ready."""


@dataclass(frozen=True, slots=True)
class StepAgain:
    """Take another step at once."""


Action = (
    Begin
    | NewSandbox
    | Start
    | Kill
    | Resize
    | StopPod
    | Cancel
    | RecordEvent
    | BeginTermination
    | ClearObstacle
    | StepAgain
)


@dataclass(frozen=True, slots=True)
class Step:
    """Result of a step: the next state, and the actions in order."""

    state: PodState
    actions: tuple[Action, ...] = ()


def initial_state(*, is_refused: bool = False) -> PodState:
    """Return the state of a pod that is new to this agent."""
    return PodState(Stage.REFUSED if is_refused else Stage.PREPARING)


def evict(
    state: PodState, termination: TerminationReason, grace_s: int | None = None
) -> PodState | None:
    """Return the state of an evicted pod; None when it is terminating already.

    `grace_s` is the longest grace period; None keeps the pod's own. Source: kubelet
    `calculateEffectiveGracePeriod`.
    """
    if not state.is_live or state.termination is not None:
        return None
    return replace(state, termination=termination, eviction_grace_s=grace_s)


def next_step(state: PodState, inputs: Inputs) -> Step:
    """Return the pod's next state and the actions that it needs now."""
    state = _advance(state, inputs.succeeded)
    before: tuple[Action, ...] = ()
    if state.is_live:
        state, before = _check_termination(state, inputs)
    match state.stage:
        case Stage.PREPARING:
            step = Step(state, (Begin(PREPARE),) if inputs.has_room else ())
        case Stage.SYNCING:
            step = _sync(state, inputs)
        case Stage.STOPPING:
            step = _stop(state, inputs)
        case Stage.CLEANING:
            step = _clean(state, inputs)
        case Stage.REFUSED | Stage.TERMINATED:
            step = _finish(state, inputs)
        case _:
            step = Step(state)
    return Step(step.state, (*before, *step.actions))


def _advance(state: PodState, succeeded: Iterable[str]) -> PodState:
    for operation in succeeded:
        stage = _AFTER.get((state.stage, operation))
        if stage is not None:
            return replace(state, stage=stage)
    return state


def _check_termination(
    state: PodState, inputs: Inputs
) -> tuple[PodState, tuple[RecordEvent | BeginTermination, ...]]:
    """Begin the termination of a live pod when it must end."""
    actions: list[RecordEvent | BeginTermination] = []
    left_s = inputs.deadline_left_s
    if state.termination is None and left_s is not None and left_s <= 0:
        state = replace(state, termination=DEADLINE)
        actions.append(RecordEvent(NORMAL, DEADLINE.reason, DEADLINE.message))
    must_end = (
        inputs.is_removed
        or state.stage is Stage.COMPLETED
        or state.termination is not None
        or inputs.pod.metadata.deletion_timestamp is not None
        or inputs.pod.status.phase in TERMINAL
    )
    if must_end:
        state = replace(state, stage=Stage.STOPPING)
        actions.append(BeginTermination())
    return state, tuple(actions)


def _sync(state: PodState, inputs: Inputs) -> Step:
    actions: list[Action] = [Begin(REFRESH if inputs.is_mounted else VOLUMES)]
    state, events = _class_events(state, inputs)
    actions.extend(events)
    if SANDBOX in inputs.running:
        return Step(state, tuple(actions))
    busy = _busy(inputs.running)
    plan = decide(inputs.pod, inputs.view, inputs.probed, busy, inputs.resizing)
    if plan.is_over:
        state = replace(state, stage=Stage.COMPLETED)
        actions.append(StepAgain())
    elif plan.sandbox is not None:
        actions.append(plan.sandbox)
    elif inputs.is_mounted:
        resize = () if plan.resize is None else (plan.resize,)
        actions.extend((ClearObstacle(), *plan.kill, *resize, *plan.start))
    return Step(state, tuple(actions))


def _stop(state: PodState, inputs: Inputs) -> Step:
    others = inputs.running - {STOP, CLEAN}
    if others:
        return Step(state, (Cancel(others),))
    grace_s = MINIMUM_GRACE_S if inputs.is_removed else grace_period_s(inputs.pod)
    if state.eviction_grace_s is not None:
        grace_s = min(grace_s, max(state.eviction_grace_s, MINIMUM_GRACE_S))
    if STOP not in inputs.running:
        return Step(replace(state, stop_grace_s=grace_s), (StopPod(grace_s),))
    if grace_s < state.stop_grace_s:
        # The grace period was shortened: stop again with less time.
        return Step(state, (Cancel(frozenset({STOP})),))
    return Step(state)


def _clean(state: PodState, inputs: Inputs) -> Step:
    others = inputs.running - {STOP, CLEAN}
    return Step(state, (Cancel(others) if others else Begin(CLEAN),))


def _finish(state: PodState, inputs: Inputs) -> Step:
    if state.stage is Stage.TERMINATED and not inputs.view.is_stopped:
        # The engine completed an operation after it was cancelled.
        return Step(replace(state, stage=Stage.STOPPING), (StepAgain(),))
    if inputs.is_removed:
        return Step(state, (Begin(DISCARD),))
    if inputs.pod.metadata.deletion_timestamp is not None:
        return Step(state, (Begin(DELETE),))
    return Step(state)


def _class_events(state: PodState, inputs: Inputs) -> tuple[PodState, tuple[RecordEvent, ...]]:
    """Record once that the class of a running pod was deleted or has another handler."""
    known, name = inputs.runtime_class, inputs.pod.spec.runtime_class_name
    if known is None:
        return state, ()
    events: list[RecordEvent] = []
    other = known.replacing_handler
    if other is not None and other != state.reported_replacing_handler:
        state = replace(state, reported_replacing_handler=other)
        message = (
            f'RuntimeClass "{name}" names handler "{other}" now: this pod stays under handler '
            f'"{known.handler}", with which it was admitted; delete it to use the other'
        )
        events.append(RecordEvent(WARNING, "RuntimeClassReplaced", message))
    if known.is_gone and not state.has_reported_class_gone:
        state = replace(state, has_reported_class_gone=True)
        message = (
            f'RuntimeClass "{name}" does not exist any more: this pod goes on under handler '
            f'"{known.handler}" on node {known.node_name}, but no new pod can name the class until '
            "it is created again"
        )
        events.append(RecordEvent(WARNING, "RuntimeClassGone", message))
    return state, tuple(events)


def _busy(running: frozenset[str]) -> frozenset[str]:
    """Return the names of containers with an operation in progress."""
    parts = (name.partition(":") for name in running)
    return frozenset(container for _, colon, container in parts if colon)
