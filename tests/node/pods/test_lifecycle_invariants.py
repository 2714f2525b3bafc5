"""Invariants of a pod's life, over any order of what may happen to it.

The machine drives a node in a few lines: an engine with sandboxes and containers, operations
that end in any order, fail, or complete although they were cancelled; agents that restart; classes
that come, go and come again with another handler.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.meta import ObjectMeta
from moorage.api.pods import Pod
from moorage.api.runtime_group import RuntimeClass
from moorage.node.pod_facts.containers import TERMINAL
from moorage.node.pods.handler_choice import (
    HandlerError,
    HandlerInputs,
    HandlerRecord,
    choose_handler,
    needs_class,
)
from moorage.node.pods.lifecycle import (
    CLEAN,
    DELETE,
    DISCARD,
    PREPARE,
    REFRESH,
    SANDBOX,
    STOP,
    VOLUMES,
    Action,
    Begin,
    Cancel,
    Inputs,
    PodState,
    Stage,
    StopPod,
    evict,
    initial_state,
    next_step,
)
from moorage.node.pods.plan import Kill, NewSandbox, Probed, Start
from moorage.node.runtime.views import ContainerView, PodView, SandboxView, State, pod_view
from moorage.node.status.inputs import TerminationReason
from tests.clocks import START_NS
from tests.node.objects import UID, a_pod, a_sandbox, engine_has, wire_container

HANDLERS = ("crun", "runsc")
MAINS, SIDECAR, INIT = ("app", "web"), "side", "init"


class PodLife:
    """One pod, its node and everything that may happen to them."""

    def __init__(self, policy: str, handler: str, *, is_handler_reported: bool) -> None:
        self.state: PodState = initial_state()
        self.sandboxes: list[SandboxView] = []
        self.containers: list[ContainerView] = []
        self.operations: dict[str, Action] = {}
        self.cancelled: set[str] = set()
        self.succeeded: set[str] = set()
        self.is_mounted = self.is_removed = self.was_terminated = False
        self.record: HandlerRecord | None = None
        self.is_record_damaged = False
        self.handlers_used: list[str] = []
        self.runtime_class: RuntimeClass | None = None
        self.clock = 0
        self.late: list[tuple[Action, str]] = []
        """Cancelled calls that the engine still completes, a sandbox's with its handler."""
        self.is_handler_reported = is_handler_reported
        self.pod: Pod = a_pod(
            *(wire_container(name) for name in MAINS),
            initContainers=[wire_container(INIT), wire_container(SIDECAR, restartPolicy="Always")],
            restartPolicy=policy,
            runtimeClassName="fast",
            meta={"creationTimestamp": "2026-01-01T12:00:00Z"},
        )
        self.runtime_class = a_class(handler, "2026-01-01T00:00:00Z")

    @property
    def view(self) -> PodView:
        return pod_view(UID, self.sandboxes, self.containers)

    # The worker

    def time_passes(self, number: int) -> None:
        """Everything that is begun succeeds, one operation after the other."""
        for _ in range(number % 4 + 1):
            self.step(1)
            for name in sorted(self.operations):
                self.operation_ends_with(name, has_effect=True)

    def deadline_passes(self, number: int) -> None:
        self.step(number, is_late=True)

    def step(self, number: int, *, is_late: bool = False) -> None:
        liveness = number % 8 != 0
        probed = Probed(
            startup={container.id: True for container in self.containers},
            liveness={container.id: liveness for container in self.containers},
        )
        before = self.state
        step = next_step(
            before,
            Inputs(
                pod=self.pod,
                view=self.view,
                probed=probed,
                running=frozenset(self.operations),
                succeeded=frozenset(self.succeeded),
                is_removed=self.is_removed,
                is_mounted=self.is_mounted,
                deadline_left_s=-1.0 if is_late and before.is_live else 60.0,
            ),
        )
        self.state = step.state
        self.succeeded.clear()
        self.check(before, step.state, step.actions)
        for action in step.actions:
            self.act(action)
        if step.state.stage is Stage.TERMINATED:
            self.was_terminated = True
            if self.pod.status.phase not in TERMINAL:
                # The worker reports it, and the API keeps it.
                self.pod = with_status(self.pod, phase="Failed")

    def check(self, before: PodState, after: PodState, actions: tuple[Action, ...]) -> None:
        forward = [action for action in actions if isinstance(action, NewSandbox | Start)]
        if not before.is_live:
            assert not after.is_live, "termination is never taken back"
        if not after.is_live or self.was_terminated:
            assert not forward, "nothing starts after termination began"
        if any(isinstance(action, NewSandbox) for action in actions):
            assert SANDBOX not in self.operations, "one sandbox at a time"
        if after.stage in (Stage.CLEANING, Stage.TERMINATED, Stage.DISCARDED):
            assert after.stage is not Stage.TERMINATED or self.view.is_stopped
        if before.stage is Stage.DISCARDED:
            assert after == before
            assert not actions

    def act(self, action: Action) -> None:
        match action:
            case Begin(operation):
                self.operations.setdefault(operation, action)
            case NewSandbox():
                replaced = next((sandbox for sandbox in self.sandboxes if sandbox.is_ready), None)
                assert replaced is None or action.replaced is not None
                self.operations.setdefault(SANDBOX, action)
            case Start():
                name = f"start:{action.name}"
                assert f"kill:{action.name}" not in self.operations
                self.operations.setdefault(name, action)
            case Kill():
                self.operations.setdefault(f"kill:{action.container.name}", action)
            case StopPod():
                self.operations.setdefault(STOP, action)
            case Cancel(operations):
                self.cancelled |= operations & self.operations.keys()

    # Operations end

    def operation_ends(self, number: int) -> None:
        if self.operations:
            names = sorted(self.operations)
            self.operation_ends_with(names[number % len(names)], has_effect=number % 5 != 0)

    def operation_ends_with(self, name: str, has_effect: bool) -> None:
        action = self.operations.pop(name)
        if name in self.cancelled:
            # The engine may complete the call all the same, even after the agent dropped it.
            self.cancelled.discard(name)
            if has_effect:
                handler = self.chosen_handler() if isinstance(action, NewSandbox) else ""
                if handler is not None:
                    self.late.append((action, handler))
        elif has_effect and self.take_effect(name, action):
            self.succeeded.add(name)

    def late_effects(self, number: int) -> None:
        """The engine completes calls that were cancelled."""
        del number
        for action, handler in self.late:
            if isinstance(action, NewSandbox):
                self.create_sandbox(action, handler)
            elif isinstance(action, Start):
                self.start_container(action.name)
        self.late.clear()

    def take_effect(self, name: str, action: Action) -> bool:
        match action:
            case NewSandbox():
                handler = self.chosen_handler()
                return handler is not None and self.create_sandbox(action, handler)
            case Start():
                return self.start_container(action.name)
            case Kill():
                self.end(action.container.id, 137)
            case StopPod():
                self.stop_everything()
        if name == VOLUMES:
            self.is_mounted = True
        elif name == CLEAN:
            self.is_mounted = False
        elif name == DELETE:
            self.is_removed = True
        elif name == DISCARD:
            self.sandboxes, self.containers = [], []
        else:
            assert name in (PREPARE, REFRESH, STOP) or ":" in name
        return True

    def chosen_handler(self) -> str | None:
        """Return the handler of the next sandbox, chosen and recorded before the engine is called.

        None where it cannot be known.
        """
        inputs = HandlerInputs(
            pod=self.pod,
            view=self.view,
            record=self.record,
            is_record_damaged=self.is_record_damaged,
        )
        try:
            handler = choose_handler(inputs, self.runtime_class if needs_class(inputs) else None)
        except HandlerError:
            return None
        if self.record is None:
            self.record, self.is_record_damaged = HandlerRecord("fast", handler), False
        return handler

    def create_sandbox(self, wanted: NewSandbox, handler: str) -> bool:
        if wanted.replaced is not None:
            self.stop_everything()
        assert not any(sandbox.is_ready for sandbox in self.sandboxes), "never two sandboxes"
        self.handlers_used.append(handler)
        self.clock += 1
        self.sandboxes.append(
            a_sandbox(
                f"s{self.clock}",
                attempt=wanted.attempt,
                handler=handler if self.is_handler_reported else None,
                created_ns=START_NS + self.clock,
            )
        )
        return True

    def start_container(self, name: str) -> bool:
        sandbox = self.view.sandbox
        if sandbox is None or not sandbox.is_ready:
            return False
        assert not any(
            container.name == name
            and container.state is State.RUNNING
            and container.sandbox_id == sandbox.id
            for container in self.containers
        ), "never the same container twice"
        self.clock += 1
        self.containers.append(
            engine_has(
                name,
                id_=f"{name}-{self.clock}",
                sandbox_id=sandbox.id,
                created_ns=START_NS + self.clock,
            )
        )
        return True

    def stop_everything(self) -> None:
        for container in list(self.containers):
            self.end(container.id, 137)
        self.sandboxes = [replace(sandbox, is_ready=False) for sandbox in self.sandboxes]

    def end(self, id_: str, code: int) -> None:
        self.containers = [
            replace(container, state=State.EXITED, exit_code=code)
            if container.id == id_ and container.state is State.RUNNING
            else container
            for container in self.containers
        ]

    # The world

    def container_exits(self, number: int) -> None:
        alive = [container.id for container in self.containers if container.state is State.RUNNING]
        if alive:
            self.end(alive[number % len(alive)], number % 2)

    def sandbox_dies(self, number: int) -> None:
        del number
        self.stop_everything()

    def class_is_replaced(self, number: int) -> None:
        """The class is deleted; for most numbers, another one has its name at once."""
        again = a_class(HANDLERS[number % 2], "2026-01-02T00:00:00Z")
        self.runtime_class = again if number % 4 else None

    def record_is_lost(self, number: int) -> None:
        """The pod's directory is damaged or gone."""
        self.is_record_damaged = bool(self.record) and number % 2 == 0
        self.record = None

    def handler_is_forgotten(self, number: int) -> None:
        """Record, class and sandbox go at once."""
        self.class_is_replaced(number)
        self.record_is_lost(number)
        self.sandbox_dies(number)

    def pod_is_deleted(self, number: int) -> None:
        meta = msgspec.structs.replace(
            self.pod.metadata,
            deletion_timestamp="2026-01-01T13:00:00Z",
            deletion_grace_period_seconds=(30, 5, 0)[number % 3],
        )
        self.pod = msgspec.structs.replace(self.pod, metadata=meta)

    def object_is_removed(self, number: int) -> None:
        del number
        self.is_removed = True

    def pod_is_evicted(self, number: int) -> None:
        del number
        self.state = evict(self.state, TerminationReason("Evicted", "too much")) or self.state

    def agent_restarts(self, number: int) -> None:
        """Begin again with what the API and the engine have."""
        del number
        if not self.is_removed:
            self.state = initial_state()
            self.operations, self.cancelled, self.succeeded = {}, set(), set()
            self.late.clear()
            self.is_mounted = False


LIVING = (
    ("time_passes",) * 6
    + ("step",) * 4
    + ("operation_ends",) * 4
    + ("container_exits",) * 3
    + ("sandbox_dies", "class_is_replaced", "record_is_lost", "agent_restarts")
    + ("late_effects", "handler_is_forgotten")
)
ENDING = ("pod_is_deleted", "object_is_removed", "pod_is_evicted", "deadline_passes")

AFTER = (*LIVING, *ENDING, *("late_effects",) * 4, *("operation_ends",) * 4)


def events(names: tuple[str, ...], *, least: int) -> st.SearchStrategy[list[tuple[str, int]]]:
    number = st.integers(0, 119)
    return st.lists(st.tuples(st.sampled_from(names), number), min_size=least, max_size=40)


@settings(deadline=None)
@given(
    policy=st.sampled_from(["Always", "OnFailure", "Never"]),
    handler=st.sampled_from(HANDLERS),
    is_handler_reported=st.booleans(),
    life=events(LIVING, least=25),
    end=st.sampled_from(ENDING),
    after=events(AFTER, least=12),
)
def test_what_never_happens_to_a_pod(
    policy: str,
    handler: str,
    is_handler_reported: bool,
    life: list[tuple[str, int]],
    end: str,
    after: list[tuple[str, int]],
) -> None:
    pod = PodLife(policy, handler, is_handler_reported=is_handler_reported)
    for event, number in (*life, (end, 0), *after):
        getattr(pod, event)(number)
        assert sum(sandbox.is_ready for sandbox in pod.sandboxes) <= 1, "never two sandboxes"
        assert len(set(pod.handlers_used)) <= 1, "the handler never changes"


def a_class(handler: str, created: str) -> RuntimeClass:
    meta = ObjectMeta(name="fast", creation_timestamp=created)
    return RuntimeClass(metadata=meta, handler=handler)


def with_status(pod: Pod, **fields: Any) -> Pod:
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, **fields))


def test_a_sandbox_that_is_made_late_has_the_handler_of_when_it_was_asked_for() -> None:
    """The pod is deleted, and its rest is gone, when the engine completes a cancelled call."""
    pod = PodLife("Always", "crun", is_handler_reported=False)
    life = [("time_passes", 0)] * 23 + [("handler_is_forgotten", 1), ("step", 0)]
    for event, number in (*life, ("pod_is_deleted", 0), *[("time_passes", 0)] * 11):
        getattr(pod, event)(number)
    pod.late_effects(0)
    assert pod.handlers_used == ["crun"]
