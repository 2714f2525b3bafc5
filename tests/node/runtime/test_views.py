from __future__ import annotations

import itertools

import pytest

from moorage.node.runtime.views import State, container_view, is_step_back, sandbox_view, state_of
from moorage.wire.cri import pb
from tests.node.objects import UID, a_sandbox, a_view, engine_has, exited


def test_states_only_advance() -> None:
    order = (State.CREATED, State.RUNNING, State.EXITED, State.UNKNOWN)
    for before, after in itertools.product(order, order):
        assert is_step_back(before, after) == (order.index(after) < order.index(before))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (pb.CONTAINER_CREATED, State.CREATED),
        (pb.CONTAINER_EXITED, State.EXITED),
        (pb.CONTAINER_UNKNOWN, State.UNKNOWN),
        (99, State.UNKNOWN),
    ],
)
def test_states_of_the_cri(value: int, wanted: State) -> None:
    assert state_of(value) is wanted  # type: ignore[arg-type]


def test_the_newest_come_first() -> None:
    view = a_view(
        a_sandbox("old", created_ns=1),
        a_sandbox("new", created_ns=2),
        exited(restarts=0, created_s=1),
        engine_has(restarts=1, created_s=5),
        engine_has("other", created_s=9),
    )
    assert view.sandbox is not None
    assert view.sandbox.id == "new"
    latest = view.latest("app")
    assert latest is not None
    assert latest.id == "app-1"
    assert [container.id for container in view.history("app")] == ["app-1", "app-0"]
    assert [container.id for container in view.alive] == ["other-0", "app-1"]


@pytest.mark.parametrize(
    ("containers", "is_stopped"),
    [
        ([a_sandbox()], False),
        ([a_sandbox(is_ready=False)], True),
        ([a_sandbox(is_ready=False), engine_has()], False),
        ([a_sandbox(is_ready=False), engine_has(state=State.UNKNOWN)], False),
        ([a_sandbox(is_ready=False), exited()], True),
        ([a_sandbox(is_ready=False), engine_has(state=State.CREATED)], True),
    ],
)
def test_when_nothing_runs_any_more(containers: list[object], is_stopped: bool) -> None:
    assert a_view(*containers).is_stopped is is_stopped  # type: ignore[arg-type]


def test_a_sandbox_from_its_message() -> None:
    status = pb.PodSandboxStatus(
        id="s",
        metadata=pb.PodSandboxMetadata(name="web", namespace="shop", uid=UID, attempt=2),
        state=pb.SANDBOX_READY,
        created_at=5,
        network=pb.PodSandboxNetworkStatus(
            ip="10.1.0.5", additional_ips=[pb.PodIP(ip="fd00::5"), pb.PodIP(ip="")]
        ),
        runtime_handler="crun",
        labels={"moorage.dev/node": "n1"},
    )
    view = sandbox_view(status)
    assert (view.ips, view.handler, view.owner) == (("10.1.0.5", "fd00::5"), "crun", "n1")
    assert (view.attempt, view.is_ready, view.is_host_network) == (2, True, False)
    status.linux.namespaces.options.network = pb.NODE
    status.network.ip = "none"
    view = sandbox_view(status)
    assert (view.is_host_network, view.ips) == (True, ("fd00::5",))


def test_a_container_from_its_message() -> None:
    status = pb.ContainerStatus(
        id="c",
        metadata=pb.ContainerMetadata(name="app", attempt=1),
        state=pb.CONTAINER_EXITED,
        created_at=1,
        started_at=2,
        finished_at=3,
        exit_code=137,
        reason="OOMKilled",
        image=pb.ImageSpec(image="app:1"),
        labels={"io.kubernetes.pod.uid": UID},
        annotations={"io.kubernetes.container.restartCount": "1"},
        stop_signal=pb.SIGUSR1,
    )
    view = container_view(status, "s", "said")
    assert (view.name, view.uid, view.sandbox_id, view.message) == ("app", UID, "s", "said")
    assert (view.state, view.exit_code, view.reason) == (State.EXITED, 137, "OOMKilled")
    assert (view.restart_count, view.stop_signal) == (1, "SIGUSR1")
    assert view.user is None
