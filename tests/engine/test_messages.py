"""CRI messages of sandboxes and containers, compared whole: a missing field is a failure."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from moorage.engine.handlers.adapters import Exit
from moorage.engine.handlers.features import HandlerFeatures
from moorage.engine.inventory import Container, Sandbox
from moorage.engine.messages import (
    container_event,
    container_item,
    container_status,
    sandbox_event,
    sandbox_item,
    sandbox_status,
)
from moorage.engine.networks import CniResult
from moorage.engine.records import ContainerRecord, SandboxRecord, Stage, User
from moorage.wire.cri import pb
from tests.engine.test_records import definition

POD_METADATA = pb.PodSandboxMetadata(name="web", uid="u-1", namespace="shop", attempt=2)
METADATA = pb.ContainerMetadata(name="main", attempt=3)
NAMESPACES = pb.NamespaceOption(network=pb.POD, pid=pb.CONTAINER, ipc=pb.NODE)
RESOURCES = pb.LinuxContainerResources(cpu_shares=512, memory_limit_in_bytes=64 << 20)
MOUNT = pb.Mount(container_path="/data", host_path="/host/data", readonly=True)
LABELS, ANNOTATIONS = {"app": "web"}, {"note": "n"}
RESULT = '{"ips":[{"address":"10.9.0.2/24"},{"address":"10.9.0.3/24"},{"address":"fd00::2/64"}]}'


def sandbox() -> Sandbox:
    config = pb.PodSandboxConfig(
        metadata=POD_METADATA,
        labels=LABELS,
        annotations=ANNOTATIONS,
        linux=pb.LinuxPodSandboxConfig(
            security_context=pb.LinuxSandboxSecurityContext(namespace_options=NAMESPACES)
        ),
    )
    record = SandboxRecord(
        id="s1",
        config=config.SerializeToString(),
        handler="kata",
        definition=definition(),
        program=Path("/usr/bin/kata"),
        features=HandlerFeatures(),
        created_at_ns=11,
        cni_result=CniResult("s1", "{}", {}, {}, RESULT),
    )
    return Sandbox(record)


def container(stage: Stage = Stage.RUNNING, above: Sandbox | None = None) -> Container:
    config = pb.ContainerConfig(
        metadata=METADATA,
        image=pb.ImageSpec(image="sha256:1", user_specified_image="app:1"),
        labels=LABELS,
        annotations=ANNOTATIONS,
        mounts=[MOUNT],
        linux=pb.LinuxContainerConfig(resources=RESOURCES),
    )
    record = ContainerRecord(
        id="c1",
        sandbox_id="s1",
        config=config.SerializeToString(),
        image_id="sha256:1",
        image_ref="app@sha256:2",
        image_name="localhost/app:1",
        created_at_ns=12,
        started_at_ns=13,
        user=User(1000, 1001, (7, 8)),
        stop_signal="SIGUSR1",
        log_path="/logs/main.log",
        stage=stage,
        reason="Error",
        message="it failed",
        exit=Exit(3, 14) if stage is Stage.EXITED else None,
    )
    return Container(record, above or sandbox())


STATUS_OF_SANDBOX = pb.PodSandboxStatus(
    id="s1",
    metadata=POD_METADATA,
    state=pb.SANDBOX_READY,
    created_at=11,
    network=pb.PodSandboxNetworkStatus(
        ip="10.9.0.2", additional_ips=[pb.PodIP(ip="10.9.0.3"), pb.PodIP(ip="fd00::2")]
    ),
    linux=pb.LinuxPodSandboxStatus(namespaces=pb.Namespace(options=NAMESPACES)),
    labels=LABELS,
    annotations=ANNOTATIONS,
    runtime_handler="kata",
)
STATUS_OF_CONTAINER = pb.ContainerStatus(
    id="c1",
    metadata=METADATA,
    state=pb.CONTAINER_RUNNING,
    created_at=12,
    started_at=13,
    image=pb.ImageSpec(image="localhost/app:1", user_specified_image="app:1"),
    image_ref="app@sha256:2",
    image_id="sha256:1",
    reason="Error",
    message="it failed",
    labels=LABELS,
    annotations=ANNOTATIONS,
    mounts=[MOUNT],
    log_path="/logs/main.log",
    resources=pb.ContainerResources(linux=RESOURCES),
    user=pb.ContainerUser(
        linux=pb.LinuxContainerUser(uid=1000, gid=1001, supplemental_groups=[7, 8])
    ),
    stop_signal=pb.SIGUSR1,
)


def test_a_sandbox_in_a_list() -> None:
    assert sandbox_item(sandbox()) == pb.PodSandbox(
        id="s1",
        metadata=POD_METADATA,
        state=pb.SANDBOX_READY,
        created_at=11,
        labels=LABELS,
        annotations=ANNOTATIONS,
        runtime_handler="kata",
    )


def test_status_of_a_ready_sandbox() -> None:
    assert sandbox_status(sandbox()) == STATUS_OF_SANDBOX


def test_a_stopped_sandbox_has_the_same_status_without_addresses() -> None:
    stopped = sandbox()
    stopped.record = msgspec.structs.replace(stopped.record, is_ready=False)
    expected = pb.PodSandboxStatus.FromString(STATUS_OF_SANDBOX.SerializeToString())
    expected.state = pb.SANDBOX_NOTREADY
    expected.network.CopyFrom(pb.PodSandboxNetworkStatus())
    assert sandbox_status(stopped) == expected
    assert sandbox_item(stopped).state == pb.SANDBOX_NOTREADY


STATES = (
    (Stage.CREATED, pb.CONTAINER_CREATED),
    (Stage.STARTING, pb.CONTAINER_CREATED),
    (Stage.RUNNING, pb.CONTAINER_RUNNING),
    (Stage.EXITED, pb.CONTAINER_EXITED),
)


@pytest.mark.parametrize(("stage", "state"), STATES)
def test_a_container_in_a_list(stage: Stage, state: pb.ContainerState.ValueType) -> None:
    assert container_item(container(stage)) == pb.Container(
        id="c1",
        pod_sandbox_id="s1",
        metadata=METADATA,
        image=pb.ImageSpec(image="sha256:1", user_specified_image="app:1"),
        image_ref="app@sha256:2",
        image_id="sha256:1",
        state=state,
        created_at=12,
        labels=LABELS,
        annotations=ANNOTATIONS,
    )


@pytest.mark.parametrize(("stage", "state"), STATES)
def test_status_of_a_container(stage: Stage, state: pb.ContainerState.ValueType) -> None:
    expected = pb.ContainerStatus.FromString(STATUS_OF_CONTAINER.SerializeToString())
    expected.state = state
    if stage is Stage.EXITED:
        expected.finished_at, expected.exit_code = 14, 3
    assert container_status(container(stage)) == expected


def test_a_container_without_tag_and_stop_signal_has_the_image_of_its_request() -> None:
    plain = container()
    plain.record = msgspec.structs.replace(plain.record, image_name="", stop_signal="")
    status = container_status(plain)
    assert status.image == pb.ImageSpec(image="sha256:1", user_specified_image="app:1")
    assert status.stop_signal == pb.RUNTIME_DEFAULT
    # The name in the status is a copy.
    assert container_status(container()).image.image == "localhost/app:1"
    assert container_item(container()).image.image == "sha256:1"


@pytest.mark.parametrize(
    ("kind", "statuses"),
    [
        (pb.CONTAINER_STARTED_EVENT, [STATUS_OF_CONTAINER]),
        (pb.CONTAINER_DELETED_EVENT, []),
    ],
)
def test_event_of_a_container(
    kind: pb.ContainerEventType.ValueType, statuses: list[pb.ContainerStatus]
) -> None:
    assert container_event(container(), kind, 21) == pb.ContainerEventResponse(
        container_id="c1",
        container_event_type=kind,
        created_at=21,
        pod_sandbox_status=STATUS_OF_SANDBOX,
        containers_statuses=statuses,
    )


def test_event_of_a_sandbox_has_the_status_of_its_containers() -> None:
    pod = sandbox()
    event = sandbox_event(pod, [container(above=pod)], pb.CONTAINER_STOPPED_EVENT, 22)
    assert event == pb.ContainerEventResponse(
        container_id="s1",
        container_event_type=pb.CONTAINER_STOPPED_EVENT,
        created_at=22,
        pod_sandbox_status=STATUS_OF_SANDBOX,
        containers_statuses=[STATUS_OF_CONTAINER],
    )
