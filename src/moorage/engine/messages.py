"""CRI messages of sandboxes and containers: ContainerStatus, PodSandboxStatus, list items, events.

Pure: each function turns an inventory item into the protobuf message that the API shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moorage.engine.inventory import Container, Sandbox
from moorage.engine.records import Stage
from moorage.wire.cri import pb

_CONTAINER_STATES: Mapping[Stage, pb.ContainerState.ValueType] = {
    Stage.CREATED: pb.CONTAINER_CREATED,
    # Shown as created until the start has succeeded or failed: clients must not act on it.
    Stage.STARTING: pb.CONTAINER_CREATED,
    Stage.RUNNING: pb.CONTAINER_RUNNING,
    Stage.EXITED: pb.CONTAINER_EXITED,
}


def sandbox_state(sandbox: Sandbox) -> pb.PodSandboxState.ValueType:
    return pb.SANDBOX_READY if sandbox.record.is_ready else pb.SANDBOX_NOTREADY


def sandbox_item(sandbox: Sandbox) -> pb.PodSandbox:
    """Return a sandbox's item in `ListPodSandbox`."""
    record, config = sandbox.record, sandbox.config
    return pb.PodSandbox(
        id=record.id,
        metadata=config.metadata,
        state=sandbox_state(sandbox),
        created_at=record.created_at_ns,
        labels=config.labels,
        annotations=config.annotations,
        runtime_handler=record.handler,
    )


def sandbox_status(sandbox: Sandbox) -> pb.PodSandboxStatus:
    """Return a sandbox's status; without addresses on the host's network, or once stopped."""
    record, config = sandbox.record, sandbox.config
    addresses = record.cni_result.addresses if record.cni_result and record.is_ready else ()
    network = pb.PodSandboxNetworkStatus(
        ip=addresses[0] if addresses else "",
        additional_ips=[pb.PodIP(ip=address) for address in addresses[1:]],
    )
    return pb.PodSandboxStatus(
        id=record.id,
        metadata=config.metadata,
        state=sandbox_state(sandbox),
        created_at=record.created_at_ns,
        network=network,
        linux=pb.LinuxPodSandboxStatus(namespaces=pb.Namespace(options=sandbox.namespace_options)),
        labels=config.labels,
        annotations=config.annotations,
        runtime_handler=record.handler,
    )


def container_state(container: Container) -> pb.ContainerState.ValueType:
    return _CONTAINER_STATES[container.record.stage]


def container_item(container: Container) -> pb.Container:
    """Return a container's item in `ListContainers`."""
    record, config = container.record, container.config
    return pb.Container(
        id=record.id,
        pod_sandbox_id=record.sandbox_id,
        metadata=config.metadata,
        image=config.image,
        image_ref=record.image_ref,
        image_id=record.image_id,
        state=container_state(container),
        created_at=record.created_at_ns,
        labels=config.labels,
        annotations=config.annotations,
    )


def container_status(container: Container) -> pb.ContainerStatus:
    """Return a container's status; times and exit code only where its state has them."""
    record, config = container.record, container.config
    user = record.user
    status = pb.ContainerStatus(
        id=record.id,
        metadata=config.metadata,
        state=container_state(container),
        created_at=record.created_at_ns,
        started_at=record.started_at_ns,
        image=_image_with_tag(container),
        image_ref=record.image_ref,
        image_id=record.image_id,
        reason=record.reason,
        message=record.message,
        labels=config.labels,
        annotations=config.annotations,
        mounts=config.mounts,
        log_path=record.log_path,
        resources=pb.ContainerResources(linux=config.linux.resources),
        user=pb.ContainerUser(
            linux=pb.LinuxContainerUser(uid=user.uid, gid=user.gid, supplemental_groups=user.groups)
        ),
        stop_signal=pb.Signal.Value(record.stop_signal or "RUNTIME_DEFAULT"),
    )
    if record.exit is not None:
        status.finished_at = record.exit.finished_at_ns
        status.exit_code = record.exit.code
    return status


def container_event(
    container: Container, kind: pb.ContainerEventType.ValueType, at_ns: int
) -> pb.ContainerEventResponse:
    """Return an event of one container; a deleted one has no status."""
    is_deleted = kind == pb.CONTAINER_DELETED_EVENT
    return pb.ContainerEventResponse(
        container_id=container.id,
        container_event_type=kind,
        created_at=at_ns,
        pod_sandbox_status=sandbox_status(container.sandbox),
        containers_statuses=[] if is_deleted else [container_status(container)],
    )


def sandbox_event(
    sandbox: Sandbox,
    containers: Iterable[Container],
    kind: pb.ContainerEventType.ValueType,
    at_ns: int,
) -> pb.ContainerEventResponse:
    """Return an event of a sandbox, with the status of its containers."""
    return pb.ContainerEventResponse(
        container_id=sandbox.id,
        container_event_type=kind,
        created_at=at_ns,
        pod_sandbox_status=sandbox_status(sandbox),
        containers_statuses=[container_status(container) for container in containers],
    )


def _image_with_tag(container: Container) -> pb.ImageSpec:
    """Return the image under its tag if it has one, as containerd does; kubelets create by id."""
    spec = pb.ImageSpec()
    spec.CopyFrom(container.config.image)
    spec.image = container.record.image_name or spec.image
    return spec
