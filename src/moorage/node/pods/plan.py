"""Pod plan: decides the next actions for a pod, pure.

Inputs are the pod's spec, the engine's view of the pod, and the probes' results; the result is the
missing actions. Called again after every change, with the containers in progress marked busy, so it
keeps no state. Source: kubelet `computePodActions`, KEP-753 (sidecars), KEP-277 (ephemeral
containers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from moorage.api.containers import Container
from moorage.api.pods import Pod, PodSpec
from moorage.node.pod_facts.containers import Kind, may_restart, should_restart
from moorage.node.pod_facts.labels import AnyContainer, container_hash
from moorage.node.pods.allocations import Change, Resize, ResizeInputs, change_of, running, updates
from moorage.node.runtime.views import ContainerView, PodView, State
from moorage.runtimeclass.overhead import is_sidecar


class Reason(Enum):
    """Why a container is killed; selects the grace period."""

    LIVENESS = "LivenessProbe"
    STARTUP = "StartupProbe"
    CHANGED = "DefinitionChanged"
    UNKNOWN = "StateUnknown"
    HOOK = "FailedPostStartHook"
    RESIZE = "ResizeRequiresRestart"


@dataclass(frozen=True, slots=True)
class Probed:
    """Latest probe verdicts by container ID. An absent ID has no verdict yet."""

    liveness: Mapping[str, bool] = field(default_factory=dict)
    startup: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewSandbox:
    """Create a sandbox with this attempt number; `replaced` is the ID of its predecessor."""

    attempt: int
    replaced: str | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Start a container, as the next attempt."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill a running container. `message` is the event's."""

    container: ContainerView
    message: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Plan:
    """Missing actions. `is_over`: no container of this pod will run again, so stop what is left."""

    sandbox: NewSandbox | None = None
    start: tuple[Start, ...] = ()
    kill: tuple[Kill, ...] = ()
    resize: Resize | None = None
    is_over: bool = False


OVER = Plan(is_over=True)
NOTHING = Plan()
_NO_RESIZE = ResizeInputs()


def decide(
    pod: Pod,
    view: PodView,
    probed: Probed,
    busy: frozenset[str],
    resizing: ResizeInputs = _NO_RESIZE,
) -> Plan:
    """Return the actions that this pod needs now; containers in `busy` are left alone.

    Must not be called for a pod that is being deleted.
    """
    replacement = needed_sandbox(pod.spec, view)
    if replacement is not None:
        return _fresh_start(pod.spec, view, replacement)
    ephemeral = tuple(
        Start(Kind.EPHEMERAL, container.name)
        for container in pod.spec.ephemeral_containers
        if container.name not in busy and view.latest(container.name) is None
    )
    init = _init_plan(pod.spec, view, probed, busy)
    if init.is_over:
        return OVER
    plan = Plan(start=(*ephemeral, *init.start), kill=tuple(init.kill))
    if init.is_initialized:
        main = _main_plan(pod.spec, view, probed, busy, resizing.stopped)
        if main.is_over:
            return OVER
        plan = Plan(start=(*plan.start, *main.start), kill=(*plan.kill, *main.kill))
    return _with_resize(plan, pod, view, busy, resizing)


def _with_resize(
    plan: Plan, pod: Pod, view: PodView, busy: frozenset[str], resizing: ResizeInputs
) -> Plan:
    """Add what a resize needs.

    First the containers that must restart are stopped, then the pod's cgroup and the others are
    resized, then containers are started: so none is larger than its pod.
    """
    restarts = _restarts(pod, view, busy, resizing, {kill.container.id for kill in plan.kill})
    kill = (*plan.kill, *restarts)
    changes = updates(pod, view, resizing)
    resize = None
    if not kill and not busy and (changes or resizing.is_due):
        resize = Resize(changes)
    start = () if resizing.holds_starts else plan.start
    return Plan(start=start, kill=kill, resize=resize)


def _restarts(
    pod: Pod, view: PodView, busy: frozenset[str], resizing: ResizeInputs, killed: set[str]
) -> list[Kill]:
    return [
        Kill(newest, f"Container {container.name} resize requires restart", Reason.RESIZE)
        for container, newest in running(pod, view)
        if container.name not in busy
        and newest.id not in killed
        and change_of(pod, container, resizing.given.get(newest.id)) is Change.RESTART
    ]


def needed_sandbox(spec: PodSpec, view: PodView) -> NewSandbox | None:
    """Return the sandbox to create; None if the current one is usable."""
    newest = view.sandbox
    if newest is None:
        return NewSandbox(0)
    is_only_ready_one = newest.is_ready and not any(
        sandbox.is_ready for sandbox in view.sandboxes[1:]
    )
    has_right_network = newest.is_host_network == spec.host_network
    has_address = newest.is_host_network or bool(newest.ips)
    if is_only_ready_one and has_right_network and has_address:
        return None
    return NewSandbox(newest.attempt + 1, newest.id)


def _fresh_start(spec: PodSpec, view: PodView, replacement: NewSandbox) -> Plan:
    """Return a plan with a new sandbox, unless all its containers have completed."""
    every = (*spec.containers, *spec.init_containers)
    never_again = not any(may_restart(container, spec) for container in every)
    if never_again and replacement.attempt != 0 and view.containers:
        return OVER
    wanted = [
        container
        for container in spec.containers
        if not _has_succeeded_for_good(container, spec, view)
    ]
    if not wanted and any(view.latest(container.name) for container in spec.containers):
        return OVER
    return Plan(sandbox=replacement)


def _has_succeeded_for_good(container: Container, spec: PodSpec, view: PodView) -> bool:
    if (container.restart_policy or spec.restart_policy) != "OnFailure":
        return False
    newest = view.latest(container.name)
    return newest is not None and newest.state is State.EXITED and newest.exit_code == 0


@dataclass(slots=True)
class _InitPlan:
    """Plan of the init containers, built from the last to the first."""

    start: list[Start] = field(default_factory=list)
    kill: list[Kill] = field(default_factory=list)
    is_initialized: bool = False
    is_over: bool = False

    def run(self, container: Container) -> None:
        self.start.insert(0, Start(Kind.INIT, container.name))

    def replace(self, newest: ContainerView, why: str, reason: Reason) -> None:
        self.kill.append(Kill(newest, why, reason))


def has_initialized(spec: PodSpec, view: PodView) -> bool:
    """Return whether initialization is complete: a main container was created."""
    return any(
        newest is not None and newest.state in (State.CREATED, State.RUNNING)
        for newest in (view.latest(container.name) for container in spec.containers)
    )


def _init_plan(spec: PodSpec, view: PodView, probed: Probed, busy: frozenset[str]) -> _InitPlan:
    """Walk the init containers backwards to the last that ran: those before it have completed.

    Completed init containers may have been removed from the engine, so the last one present
    decides.
    """
    plan = _InitPlan()
    if not spec.init_containers:
        plan.is_initialized = True
        return plan
    plan.is_initialized = is_past = has_initialized(spec, view)
    last = len(spec.init_containers) - 1
    for index in range(last, -1, -1):
        container = spec.init_containers[index]
        newest = view.latest(container.name)
        if container.name in busy:
            is_past = True
            continue
        if newest is None:
            if is_past and is_sidecar(container):
                plan.run(container)
            continue
        if is_past and not is_sidecar(container):
            continue
        is_done = _init_step(plan, spec, container, newest, probed)
        if plan.is_over:
            return plan
        if is_done and index == last:
            plan.is_initialized = True
        elif is_done and not is_past:
            plan.run(spec.init_containers[index + 1])
        is_past = True
    if not is_past:
        plan.run(spec.init_containers[0])
    return plan


def _init_step(
    plan: _InitPlan, spec: PodSpec, container: Container, newest: ContainerView, probed: Probed
) -> bool:
    """Add the actions for one init container; return whether the next one may start."""
    match newest.state:
        case State.CREATED:
            plan.run(container)
            return False
        case State.RUNNING:
            return is_sidecar(container) and _sidecar_step(plan, container, newest, probed)
        case State.UNKNOWN:
            why = 'Init container is in "unknown" state, try killing it before restart'
            plan.replace(newest, why, Reason.UNKNOWN)
            return False
    if is_sidecar(container):
        plan.run(container)
        return False
    if newest.exit_code == 0:
        return True
    if should_restart(container, spec, newest.exit_code):
        plan.run(container)
    else:
        plan.is_over = True
    return False


def _sidecar_step(
    plan: _InitPlan, container: Container, newest: ContainerView, probed: Probed
) -> bool:
    """Add the actions for a running sidecar; return whether it has started."""
    name = container.name
    if container.startup_probe is not None:
        verdict = probed.startup.get(newest.id)
        if verdict is False:
            why = f"Init container {name} failed startup probe"
            plan.replace(newest, why, Reason.STARTUP)
        if not verdict:
            return False
    if is_changed(container, newest):
        why = f"Init container {name} definition changed"
        plan.replace(newest, why, Reason.CHANGED)
    elif probed.liveness.get(newest.id) is False:
        why = f"Init container {name} failed liveness probe"
        plan.replace(newest, why, Reason.LIVENESS)
    return True


def is_changed(container: AnyContainer, newest: ContainerView) -> bool:
    """Return whether the running container was created from another definition (its image)."""
    made_from = newest.memory.hash
    return made_from is not None and made_from != container_hash(container)


def _main_plan(
    spec: PodSpec,
    view: PodView,
    probed: Probed,
    busy: frozenset[str],
    stopped: frozenset[str],
) -> Plan:
    start: list[Start] = []
    kill: list[Kill] = []
    is_any_left = False
    is_held = False
    for container in spec.containers:
        newest = view.latest(container.name)
        if container.name in busy:
            is_any_left = True
            is_held = is_held or _has_post_start(container)
            continue
        if newest is not None and newest.state is State.RUNNING:
            is_any_left = True
            fault = _fault(container, newest, probed)
            if fault is not None:
                kill.append(_with_intent(fault, spec, container))
        elif newest is None or newest.id in stopped or _runs_again(container, spec, newest):
            is_any_left = True
            if newest is not None and newest.state is State.UNKNOWN:
                why = 'Container is in "unknown" state, try killing it before restart'
                kill.append(Kill(newest, why, Reason.UNKNOWN))
            elif not is_held:
                start.append(Start(Kind.MAIN, container.name))
                is_held = _has_post_start(container)
    if not is_any_left:
        return OVER
    return Plan(start=tuple(start), kill=tuple(kill))


def _has_post_start(container: Container) -> bool:
    """Return whether the container has a postStart hook, for which the containers after it wait.

    Upstream starts containers one by one, and pods rely on a hook delaying the following ones.
    """
    return container.lifecycle is not None and container.lifecycle.post_start is not None


def _runs_again(container: Container, spec: PodSpec, newest: ContainerView) -> bool:
    if newest.state in (State.CREATED, State.UNKNOWN):
        return True
    return should_restart(container, spec, newest.exit_code)


def _fault(container: Container, newest: ContainerView, probed: Probed) -> Kill | None:
    """Return why a running container must be killed; None if it may continue."""
    name = container.name
    if is_changed(container, newest):
        return Kill(newest, f"Container {name} definition changed", Reason.CHANGED)
    if probed.liveness.get(newest.id) is False:
        return Kill(newest, f"Container {name} failed liveness probe", Reason.LIVENESS)
    if probed.startup.get(newest.id) is False:
        return Kill(newest, f"Container {name} failed startup probe", Reason.STARTUP)
    return None


def _with_intent(kill: Kill, spec: PodSpec, container: Container) -> Kill:
    """Add to the message whether the container is restarted: after a changed definition always."""
    policy = container.restart_policy or spec.restart_policy
    if kill.reason != Reason.CHANGED and policy == "Never":
        return kill
    return Kill(kill.container, f"{kill.message}, will be restarted", kill.reason)
