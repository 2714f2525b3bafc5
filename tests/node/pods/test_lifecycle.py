"""The state machine of a pod, as tables of state, inputs, next state and actions."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.pods import Pod
from moorage.node.pod_facts.containers import Kind
from moorage.node.pods.lifecycle import (
    CLEAN,
    DEADLINE,
    DELETE,
    DISCARD,
    PREPARE,
    REFRESH,
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
    PodState,
    RecordEvent,
    Stage,
    StepAgain,
    StopPod,
    evict,
    initial_state,
    next_step,
)
from moorage.node.pods.plan import Kill, NewSandbox, Probed, Reason, Start
from moorage.node.runtime.views import PodView
from moorage.node.status.inputs import TerminationReason
from moorage.wire.client.recorder import NORMAL, WARNING
from tests.node.objects import UID, a_pod, a_sandbox, a_view, engine_has, exited

NO_VIEW = PodView(UID)
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 9}
EVICTED = TerminationReason("Evicted", "too much")
START_APP = Start(Kind.MAIN, "app")
DEADLINE_EVENT = RecordEvent(NORMAL, DEADLINE.reason, DEADLINE.message)


def inputs(pod: Pod | None = None, view: PodView = NO_VIEW, **fields: Any) -> Inputs:
    return Inputs(pod=pod or a_pod(), view=view, **fields)


def names(*operations: str) -> frozenset[str]:
    return frozenset(operations)


TERMINATED_VIEW = a_view(a_sandbox(is_ready=False), exited())
RUNNING_VIEW = a_view(engine_has())
STOPPED_AND_CLEAN = PodState(Stage.TERMINATED)


@pytest.mark.parametrize(
    ("state", "inputs", "stage", "actions"),
    [
        pytest.param(
            PodState(), inputs(), Stage.PREPARING, [Begin(PREPARE)], id="new: prepared first"
        ),
        pytest.param(
            PodState(),
            inputs(succeeded=names(PREPARE)),
            Stage.SYNCING,
            [Begin(VOLUMES), NewSandbox(0)],
            id="prepared: volumes and sandbox side by side",
        ),
        pytest.param(
            PodState(Stage.SYNCING),
            inputs(running=names(SANDBOX, VOLUMES)),
            Stage.SYNCING,
            [Begin(VOLUMES)],
            id="nothing more while the sandbox is being created",
        ),
        pytest.param(
            PodState(Stage.SYNCING),
            inputs(view=a_view()),
            Stage.SYNCING,
            [Begin(VOLUMES)],
            id="no container without volumes",
        ),
        pytest.param(
            PodState(Stage.SYNCING),
            inputs(view=a_view(), is_mounted=True),
            Stage.SYNCING,
            [Begin(REFRESH), ClearObstacle(), START_APP],
            id="containers start when sandbox and volumes are ready",
        ),
        pytest.param(
            PodState(Stage.SYNCING),
            inputs(view=a_view(), is_mounted=True, running=names("start:app", REFRESH)),
            Stage.SYNCING,
            [Begin(REFRESH), ClearObstacle()],
            id="a container that is being started is left alone",
        ),
        pytest.param(
            PodState(Stage.SYNCING),
            inputs(view=RUNNING_VIEW, is_mounted=True, probed=Probed(liveness={"app-0": False})),
            Stage.SYNCING,
            [
                Begin(REFRESH),
                ClearObstacle(),
                Kill(
                    RUNNING_VIEW.containers[0],
                    "Container app failed liveness probe, will be restarted",
                    Reason.LIVENESS,
                ),
            ],
            id="a failed liveness probe kills",
        ),
        pytest.param(
            PodState(Stage.SYNCING),
            inputs(a_pod(restartPolicy="Never"), a_view(exited())),
            Stage.COMPLETED,
            [Begin(VOLUMES), StepAgain()],
            id="completed: nothing runs again",
        ),
        pytest.param(
            PodState(Stage.COMPLETED),
            inputs(a_pod(restartPolicy="Never"), a_view(exited())),
            Stage.STOPPING,
            [BeginTermination(), StopPod(30)],
            id="completed: stopped in the next step",
        ),
        pytest.param(
            PodState(Stage.SYNCING),
            inputs(a_pod(meta=DELETED), RUNNING_VIEW, running=names(REFRESH)),
            Stage.STOPPING,
            [BeginTermination(), Cancel(names(REFRESH))],
            id="deleted: operations are cancelled before anything is stopped",
        ),
        pytest.param(
            PodState(),
            inputs(a_pod(status={"phase": "Failed"})),
            Stage.STOPPING,
            [BeginTermination(), StopPod(30)],
            id="a pod that the API has as failed never begins",
        ),
        pytest.param(
            PodState(Stage.SYNCING),
            inputs(view=RUNNING_VIEW, deadline_left_s=0.0),
            Stage.STOPPING,
            [DEADLINE_EVENT, BeginTermination(), StopPod(30)],
            id="deadline",
        ),
        pytest.param(
            PodState(Stage.SYNCING, EVICTED),
            inputs(view=RUNNING_VIEW, deadline_left_s=-5.0),
            Stage.STOPPING,
            [BeginTermination(), StopPod(30)],
            id="evicted: a deadline that passes as well is not reported",
        ),
        pytest.param(
            PodState(Stage.SYNCING),
            inputs(view=RUNNING_VIEW, is_removed=True),
            Stage.STOPPING,
            [BeginTermination(), StopPod(2)],
            id="removed: the minimum grace period",
        ),
        pytest.param(
            PodState(Stage.STOPPING, stop_grace_s=30),
            inputs(a_pod(meta=DELETED), RUNNING_VIEW, running=names(STOP)),
            Stage.STOPPING,
            [Cancel(names(STOP))],
            id="a shorter grace period cancels the stop in progress",
        ),
        pytest.param(
            PodState(Stage.STOPPING, stop_grace_s=9),
            inputs(a_pod(meta=DELETED), RUNNING_VIEW, running=names(STOP)),
            Stage.STOPPING,
            [],
            id="the same grace period does not",
        ),
        pytest.param(
            PodState(Stage.STOPPING, stop_grace_s=9),
            inputs(view=TERMINATED_VIEW, succeeded=names(STOP), running=names(STOP)),
            Stage.CLEANING,
            [Begin(CLEAN)],
            id="stopped: cleaned",
        ),
        pytest.param(
            PodState(Stage.CLEANING),
            inputs(view=TERMINATED_VIEW, succeeded=names(CLEAN)),
            Stage.TERMINATED,
            [],
            id="clean: waits for its deletion",
        ),
        pytest.param(
            PodState(Stage.CLEANING),
            inputs(a_pod(meta=DELETED), TERMINATED_VIEW, succeeded=names(CLEAN)),
            Stage.TERMINATED,
            [Begin(DELETE)],
            id="clean and deleted: the object is deleted",
        ),
        pytest.param(
            STOPPED_AND_CLEAN,
            inputs(view=TERMINATED_VIEW, is_removed=True),
            Stage.TERMINATED,
            [Begin(DISCARD)],
            id="the object is gone: the engine's records go",
        ),
        pytest.param(
            STOPPED_AND_CLEAN,
            inputs(view=RUNNING_VIEW, is_removed=True),
            Stage.STOPPING,
            [StepAgain()],
            id="something runs again: stopped again",
        ),
        pytest.param(
            PodState(Stage.TERMINATED),
            inputs(is_removed=True, succeeded=names(DISCARD)),
            Stage.DISCARDED,
            [],
            id="discarded",
        ),
        pytest.param(
            initial_state(is_refused=True), inputs(), Stage.REFUSED, [], id="refused: only reported"
        ),
        pytest.param(
            initial_state(is_refused=True),
            inputs(a_pod(meta=DELETED), RUNNING_VIEW),
            Stage.REFUSED,
            [Begin(DELETE)],
            id="refused and deleted",
        ),
        pytest.param(
            initial_state(is_refused=True),
            inputs(is_removed=True, succeeded=names(DISCARD)),
            Stage.DISCARDED,
            [],
            id="refused and discarded",
        ),
    ],
)
def test_one_step(state: PodState, inputs: Inputs, stage: Stage, actions: list[Action]) -> None:
    step = next_step(state, inputs)
    assert (step.state.stage, list(step.actions)) == (stage, actions)


@pytest.mark.parametrize("stage", [stage for stage in Stage if stage is not Stage.PREPARING])
def test_a_success_of_another_stage_changes_nothing(stage: Stage) -> None:
    state = PodState(stage)
    late = next_step(state, inputs(view=TERMINATED_VIEW, succeeded=names(PREPARE)))
    assert late == next_step(state, inputs(view=TERMINATED_VIEW))


def test_the_deadline_is_the_reason_of_the_termination() -> None:
    state = next_step(PodState(Stage.SYNCING), inputs(deadline_left_s=0.0)).state
    assert state.termination == DEADLINE


def test_each_change_of_the_class_is_recorded_once() -> None:
    pod = a_pod(runtimeClassName="fast")
    known = ClassInputs(node_name="n1", handler="crun", is_gone=False, replacing_handler="runsc")
    replaced = inputs(pod, RUNNING_VIEW, runtime_class=known)
    first = next_step(PodState(Stage.SYNCING), replaced)
    assert first.actions[1] == RecordEvent(
        WARNING,
        "RuntimeClassReplaced",
        'RuntimeClass "fast" names handler "runsc" now: this pod stays under handler "crun", with '
        "which it was admitted; delete it to use the other",
    )
    assert next_step(first.state, replaced).actions == (Begin(VOLUMES),)
    gone = ClassInputs(node_name="n1", handler="crun", is_gone=True, replacing_handler=None)
    second = next_step(first.state, inputs(pod, RUNNING_VIEW, runtime_class=gone))
    assert second.actions[1] == RecordEvent(
        WARNING,
        "RuntimeClassGone",
        'RuntimeClass "fast" does not exist any more: this pod goes on under handler "crun" on '
        "node n1, but no new pod can name the class until it is created again",
    )
    assert next_step(second.state, replaced).actions == (Begin(VOLUMES),)


@pytest.mark.parametrize("stage", list(Stage))
def test_only_a_live_pod_can_be_evicted(stage: Stage) -> None:
    state = evict(PodState(stage), EVICTED)
    is_live = stage in (Stage.PREPARING, Stage.SYNCING, Stage.COMPLETED)
    assert (state == PodState(stage, EVICTED)) if is_live else state is None


def test_a_pod_is_evicted_once() -> None:
    assert evict(PodState(Stage.SYNCING, EVICTED), TerminationReason("Evicted", "again")) is None


@pytest.mark.parametrize(
    ("stage", "is_live", "is_over", "is_final"),
    [
        (Stage.REFUSED, False, True, True),
        (Stage.PREPARING, True, False, False),
        (Stage.SYNCING, True, False, False),
        (Stage.COMPLETED, True, False, True),
        (Stage.STOPPING, False, False, True),
        (Stage.CLEANING, False, False, True),
        (Stage.TERMINATED, False, True, True),
        (Stage.DISCARDED, False, True, True),
    ],
)
def test_what_a_stage_means(stage: Stage, is_live: bool, is_over: bool, is_final: bool) -> None:
    state = PodState(stage)
    assert (state.is_live, state.is_over, state.is_final) == (is_live, is_over, is_final)


@pytest.mark.parametrize(
    ("own_s", "evicted_within_s", "grace_s"),
    [(30, 1, 2), (30, 20, 20), (30, 60, 30), (30, None, 30), (0, 20, 0)],
)
def test_eviction_shortens_the_grace_period_of_the_pod(
    own_s: int, evicted_within_s: int | None, grace_s: int
) -> None:
    state = evict(PodState(Stage.SYNCING), EVICTED, evicted_within_s)
    assert state is not None
    inputs = Inputs(pod=a_pod(terminationGracePeriodSeconds=own_s), view=a_view(a_sandbox()))
    assert StopPod(grace_s) in next_step(state, inputs).actions
