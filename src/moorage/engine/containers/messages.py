"""Containers in the CRI's words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moorage.cri import pb
from moorage.engine.inventory import Container
from moorage.engine.labels import has_labels
from moorage.engine.records import Stage

_STATES: Mapping[Stage, pb.ContainerState.ValueType] = {
    Stage.CREATED: pb.CONTAINER_CREATED,
    # Until it is known how far the start came, nobody may act on it.
    Stage.STARTING: pb.CONTAINER_CREATED,
    Stage.RUNNING: pb.CONTAINER_RUNNING,
    Stage.EXITED: pb.CONTAINER_EXITED,
}


def container_state(container: Container) -> pb.ContainerState.ValueType:
    return _STATES[container.record.stage]


def container_item(container: Container) -> pb.Container:
    """A container as a list tells of it."""
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
    """A container as its status tells of it. Times and codes only where the state has them."""
    record, config = container.record, container.config
    user = record.user
    status = pb.ContainerStatus(
        id=record.id,
        metadata=config.metadata,
        state=container_state(container),
        created_at=record.created_at_ns,
        started_at=record.started_at_ns,
        image=_named_image(container),
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


def _named_image(container: Container) -> pb.ImageSpec:
    """Return the image under its tag if it has one, as containerd does; kubelets create by id."""
    spec = pb.ImageSpec()
    spec.CopyFrom(container.config.image)
    spec.image = container.record.image_name or spec.image
    return spec


def chosen_containers(
    containers: Iterable[Container], wanted: pb.ContainerFilter
) -> Iterable[Container]:
    """Those that a filter lets through; ids may be shortened."""
    for container in containers:
        if wanted.id and not container.id.startswith(wanted.id):
            continue
        if wanted.HasField("state") and wanted.state.state != container_state(container):
            continue
        if not container.record.sandbox_id.startswith(wanted.pod_sandbox_id):
            continue
        if has_labels(container.config.labels, wanted.label_selector):
            yield container
