"""Which sandboxes and containers a list's filter lets through."""

from __future__ import annotations

import msgspec
import pytest

from moorage.engine.containers.state import filter_containers
from moorage.engine.handlers.adapters import Exit
from moorage.engine.messages import container_status, sandbox_status
from moorage.engine.records import Stage
from moorage.engine.sandboxes.state import filter_sandboxes
from moorage.wire.cri import pb
from tests.engine.test_inventory import container, sandbox

READY, GONE = sandbox("aa11", name="ready"), sandbox("aa22", name="gone")
READY.config.labels["app"] = "web"
GONE.record = msgspec.structs.replace(GONE.record, is_ready=False)


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (pb.PodSandboxFilter(), ["aa11", "aa22"]),
        (pb.PodSandboxFilter(id="aa"), ["aa11", "aa22"]),
        (pb.PodSandboxFilter(id="aa2"), ["aa22"]),
        (pb.PodSandboxFilter(id="bb"), []),
        (pb.PodSandboxFilter(state=pb.PodSandboxStateValue(state=pb.SANDBOX_READY)), ["aa11"]),
        (pb.PodSandboxFilter(state=pb.PodSandboxStateValue(state=pb.SANDBOX_NOTREADY)), ["aa22"]),
        (pb.PodSandboxFilter(label_selector={"app": "web"}), ["aa11"]),
        (pb.PodSandboxFilter(id="aa2", label_selector={"app": "web"}), []),
    ],
)
def test_sandboxes_are_chosen(wanted: pb.PodSandboxFilter, ids: list[str]) -> None:
    assert [sandbox.id for sandbox in filter_sandboxes((READY, GONE), wanted)] == ids


RUNNING, ENDED, STARTING = container(READY, "c1"), container(READY, "c2"), container(GONE, "c3")
RUNNING.record = msgspec.structs.replace(RUNNING.record, stage=Stage.RUNNING, started_at_ns=2)
ENDED.record = msgspec.structs.replace(
    ENDED.record, stage=Stage.EXITED, exit=Exit(3, 5), reason="Error"
)
STARTING.record = msgspec.structs.replace(STARTING.record, stage=Stage.STARTING)
STARTING.config.labels["app"] = "web"


def _state(state: pb.ContainerState.ValueType) -> pb.ContainerFilter:
    return pb.ContainerFilter(state=pb.ContainerStateValue(state=state))


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (pb.ContainerFilter(), ["c1", "c2", "c3"]),
        (pb.ContainerFilter(id="c2"), ["c2"]),
        (pb.ContainerFilter(pod_sandbox_id="aa1"), ["c1", "c2"]),
        (_state(pb.CONTAINER_RUNNING), ["c1"]),
        (_state(pb.CONTAINER_EXITED), ["c2"]),
        (_state(pb.CONTAINER_CREATED), ["c3"]),
        (_state(pb.CONTAINER_UNKNOWN), []),
        (pb.ContainerFilter(label_selector={"app": "web"}), ["c3"]),
    ],
)
def test_containers_are_chosen(wanted: pb.ContainerFilter, ids: list[str]) -> None:
    assert [
        container.id for container in filter_containers((RUNNING, ENDED, STARTING), wanted)
    ] == ids


def test_exit_is_reported_only_for_ended_containers() -> None:
    assert (container_status(RUNNING).finished_at, container_status(RUNNING).exit_code) == (0, 0)
    ended = container_status(ENDED)
    assert (ended.finished_at, ended.exit_code, ended.reason) == (5, 3, "Error")


def test_a_sandbox_without_a_network_of_its_own_has_no_address() -> None:
    assert not sandbox_status(READY).network.ip
    assert sandbox_status(GONE).state == pb.SANDBOX_NOTREADY
