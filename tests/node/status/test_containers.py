from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.pods import ContainerStatus, Pod, PodStatus
from moorage.node.pod_facts.containers import Kind
from moorage.node.runtime.views import ContainerView, PodView, State, UserView, pod_view
from moorage.node.status.containers import container_statuses
from moorage.node.status.inputs import Verdicts, Waiting
from tests.node.objects import (
    UID,
    Wire,
    a_pod,
    a_view,
    engine_has,
    exited,
    status_inputs,
    wire_container,
)

NOTHING = pod_view(UID, (), ())


def the_status(
    pod: Pod,
    *containers: ContainerView,
    old: Wire | None = None,
    kind: Kind = Kind.MAIN,
    **known: Any,
) -> ContainerStatus:
    """The status of the pod's only container of a kind; `old` is what was reported before."""
    view: PodView = a_view(*containers) if containers else NOTHING
    field = "initContainerStatuses" if kind is Kind.INIT else "containerStatuses"
    before = msgspec.convert({field: [old] if old is not None else []}, PodStatus)
    return container_statuses(status_inputs(pod, view, before=before, **known), kind)[0]


def wire(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


# What the engine has


def test_a_container_that_runs() -> None:
    status = the_status(
        a_pod(wire_container(resources={"requests": {"cpu": "1"}})),
        engine_has(restarts=2, created_s=3, user=UserView(7, 8, (9,)), stop_signal="SIGTERM"),
    )
    assert wire(status) == {
        "name": "app",
        "state": {"running": {"startedAt": "2026-01-01T00:00:03Z"}},
        "lastState": {},
        "ready": True,
        "started": True,
        "restartCount": 2,
        "image": "app:1",
        "imageID": "sha256:app",
        "containerID": "containerd://app-2",
        "resources": {"requests": {"cpu": "1"}},
        "allocatedResources": {"cpu": "1"},
        "user": {"linux": {"uid": 7, "gid": 8, "supplementalGroups": [9]}},
        "stopSignal": "SIGTERM",
    }


def test_a_container_that_ended() -> None:
    status = the_status(a_pod(restartPolicy="Never"), exited(code=3, message="broken pipe"))
    assert wire(status.state) == {
        "terminated": {
            "exitCode": 3,
            "reason": "Error",
            "message": "broken pipe",
            "startedAt": "2026-01-01T00:00:01Z",
            "finishedAt": "2026-01-01T00:00:02Z",
            "containerID": "containerd://app-0",
        }
    }
    assert (status.ready, status.started) == (False, False)


def test_the_run_before_is_the_last_state() -> None:
    status = the_status(a_pod(), exited(code=3), engine_has(restarts=1, created_s=5))
    assert status.state.running is not None
    assert status.last_state.terminated is not None
    assert status.last_state.terminated.exit_code == 3
    assert status.restart_count == 1


@pytest.mark.parametrize(
    ("old", "code"),
    [
        ({"containerID": "containerd://gone", "state": {"terminated": {"exitCode": 5}}}, 5),
        (
            {
                "containerID": "containerd://app-1",
                "state": {"running": {}},
                "lastState": {"terminated": {"exitCode": 6}},
            },
            6,
        ),
    ],
    ids=["it was the present state then", "it was the last state already"],
)
def test_a_last_state_whose_record_is_gone_is_kept(old: Wire, code: int) -> None:
    status = the_status(a_pod(), engine_has(restarts=1), old={"name": "app", **old})
    assert status.last_state.terminated is not None
    assert status.last_state.terminated.exit_code == code


@pytest.mark.parametrize("place", ["state", "lastState"])
def test_a_message_that_was_reported_stays_when_its_file_is_gone(place: str) -> None:
    """An agent that starts after the pod has ended does not find it."""
    before = {"terminated": {"message": "broken pipe", "containerID": "containerd://app-0"}}
    pod, old = a_pod(restartPolicy="Never"), {"name": "app", place: before}
    if place == "state":
        now = the_status(pod, exited(code=3), old=old).state.terminated
    else:
        running = engine_has(restarts=1, created_s=5)
        now = the_status(pod, exited(code=3), running, old=old).last_state.terminated
    assert now is not None
    assert now.message == "broken pipe"
    other = {**old, place: {"terminated": {**before["terminated"], "containerID": "x://app-9"}}}
    state = the_status(pod, exited(code=3), old=other).state
    assert state.terminated is not None
    assert state.terminated.message == ""


def test_counts_never_go_back() -> None:
    status = the_status(a_pod(), engine_has(restarts=1), old={"name": "app", "restartCount": 7})
    assert status.restart_count == 7


def test_long_messages_share_what_all_together_may_take() -> None:
    pod = a_pod(wire_container("app"), wire_container("b"), wire_container("c"))
    status = the_status(pod, exited(message="ü" * 5000))
    assert status.state.terminated is not None
    assert status.state.terminated.message == "ü" * 2048


def test_an_unknown_state_of_what_ran_is_reported_as_lost() -> None:
    old = {"name": "app", "state": {"running": {}}, "containerID": "containerd://app-0"}
    status = the_status(a_pod(), engine_has(state=State.UNKNOWN), old=old)
    assert status.state.terminated is not None
    assert (status.state.terminated.exit_code, status.state.terminated.reason) == (
        137,
        "ContainerStatusUnknown",
    )


# What the engine has not


@pytest.mark.parametrize(
    ("spec", "reason"),
    [({}, "ContainerCreating"), ({"initContainers": [wire_container("i")]}, "PodInitializing")],
)
def test_not_created_yet(spec: Wire, reason: str) -> None:
    status = the_status(a_pod(**spec))
    assert wire(status.state) == {"waiting": {"reason": reason}}
    assert (status.image, status.ready, status.started) == ("app:1", False, False)


def test_obstacle_is_the_waiting_message() -> None:
    status = the_status(a_pod(), obstacle=Waiting("NetworkNotReady", "network is not ready: x"))
    assert wire(status.state) == {
        "waiting": {"reason": "ContainerCreating", "message": "network is not ready: x"}
    }


def test_an_end_once_reported_stays() -> None:
    old = {"name": "app", "state": {"terminated": {"exitCode": 3}}, "restartCount": 2}
    status = the_status(a_pod(restartPolicy="Never"), old=old)
    assert status.state.terminated is not None
    assert (status.state.terminated.exit_code, status.restart_count) == (3, 2)


@pytest.mark.parametrize(("is_deleted", "restarts"), [(False, 3), (True, 2)])
def test_what_ran_and_is_gone_without_a_trace_is_counted(is_deleted: bool, restarts: int) -> None:
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if is_deleted else {}
    old = {"name": "app", "state": {"running": {}}, "restartCount": 2}
    status = the_status(a_pod(meta=meta), old=old)
    assert status.last_state.terminated is not None
    assert status.last_state.terminated.exit_code == 137
    assert status.restart_count == restarts


# Why it does not run


@pytest.mark.parametrize("containers", [[], [exited(code=1)]], ids=["never ran", "ran before"])
def test_waiting_reason_is_reported(containers: list[ContainerView]) -> None:
    waiting = {"app": Waiting("ImagePullBackOff", "Back-off pulling image")}
    status = the_status(a_pod(), *containers, waiting=waiting)
    assert wire(status.state) == {
        "waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    }
    assert (status.last_state.terminated is not None) == bool(containers)


@pytest.mark.parametrize(
    ("pod", "container"),
    [
        (a_pod(), engine_has()),
        (a_pod(restartPolicy="Never"), exited(code=1)),
        (a_pod(restartPolicy="OnFailure"), exited(code=0)),
        (a_pod(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), exited(code=1)),
    ],
    ids=["runs", "never again", "succeeded", "being deleted"],
)
def test_old_waiting_reason_is_not_reported_for_a_container_that_will_not_start(
    pod: Pod, container: ContainerView
) -> None:
    status = the_status(pod, container, waiting={"app": Waiting("CrashLoopBackOff")})
    assert status.state.waiting is None


# Init containers


def test_an_init_container_is_ready_when_it_has_succeeded() -> None:
    pod = a_pod(initContainers=[wire_container("i")])
    assert not the_status(pod, engine_has("i"), kind=Kind.INIT).ready
    assert the_status(pod, exited("i"), kind=Kind.INIT).ready
    assert not the_status(pod, exited("i", 1), kind=Kind.INIT).ready


def test_an_init_container_of_which_nothing_is_left_must_have_run() -> None:
    pod = a_pod(initContainers=[wire_container("i")])
    status = the_status(pod, engine_has("app"), kind=Kind.INIT)
    assert status.state.terminated is not None
    assert (status.state.terminated.reason, status.ready) == ("Completed", True)


def test_a_successful_init_container_shows_no_reason_for_waiting() -> None:
    pod = a_pod(initContainers=[wire_container("i")])
    waiting = {"i": Waiting("CrashLoopBackOff")}
    status = the_status(pod, exited("i"), kind=Kind.INIT, waiting=waiting)
    assert status.state.terminated is not None


def test_a_sidecar_is_ready_by_its_probe() -> None:
    probe = {"exec": {"command": ["true"]}}
    pod = a_pod(initContainers=[wire_container("s", restartPolicy="Always", readinessProbe=probe)])
    verdicts = Verdicts(readiness={"s-0": True})
    assert not the_status(pod, engine_has("s"), kind=Kind.INIT).ready
    assert the_status(pod, engine_has("s"), kind=Kind.INIT, verdicts=verdicts).ready


# Probes

PROBED = a_pod(
    wire_container(
        startupProbe={"exec": {"command": ["true"]}},
        readinessProbe={"exec": {"command": ["true"]}},
    )
)


@pytest.mark.parametrize(
    ("verdicts", "started", "ready"),
    [
        (Verdicts(), False, False),
        (Verdicts(startup={"app-0": True}), True, False),
        (Verdicts(startup={"app-0": True}, readiness={"app-0": True}), True, True),
        (Verdicts(readiness={"app-0": True}), False, False),
        (Verdicts(startup={"app-0": True}, readiness={"app-0": False}), True, False),
        (Verdicts(startup={"older": True}, readiness={"older": True}), False, False),
    ],
)
def test_started_and_ready_by_probes(verdicts: Verdicts, started: bool, ready: bool) -> None:
    status = the_status(PROBED, engine_has(), verdicts=verdicts)
    assert (status.started, status.ready) == (started, ready)


@pytest.mark.parametrize(("id_", "wanted"), [("app-0", True), ("other", False)])
def test_a_new_agent_believes_what_was_reported_of_the_same_container(
    id_: str, wanted: bool
) -> None:
    old = {"name": "app", "containerID": f"containerd://{id_}", "started": True, "ready": True}
    status = the_status(PROBED, engine_has(), old=old)
    assert (status.started, status.ready) == (wanted, wanted)


# Mounts and order


@pytest.mark.parametrize(
    ("mount", "is_supported", "wanted"),
    [
        ({}, True, None),
        ({"readOnly": True}, True, "Disabled"),
        ({"readOnly": True, "recursiveReadOnly": "Enabled"}, True, "Enabled"),
        ({"readOnly": True, "recursiveReadOnly": "IfPossible"}, True, "Enabled"),
        ({"readOnly": True, "recursiveReadOnly": "IfPossible"}, False, "Disabled"),
    ],
)
def test_how_read_only_a_mount_became(mount: Wire, is_supported: bool, wanted: Any) -> None:
    pod = a_pod(wire_container(volumeMounts=[{"name": "v", "mountPath": "/v", **mount}]))
    status = the_status(pod, engine_has(), has_recursive_read_only=is_supported)
    assert status.volume_mounts[0].recursive_read_only == wanted


def test_main_containers_are_sorted_init_containers_are_not() -> None:
    pod = a_pod(
        wire_container("b"),
        wire_container("a"),
        initContainers=[wire_container("z"), wire_container("y")],
    )
    known = status_inputs(pod, a_view())
    assert [container_status.name for container_status in container_statuses(known, Kind.MAIN)] == [
        "a",
        "b",
    ]
    assert [container_status.name for container_status in container_statuses(known, Kind.INIT)] == [
        "z",
        "y",
    ]
