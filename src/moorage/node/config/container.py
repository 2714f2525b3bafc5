"""Container configuration for CRI CreateContainer.

Combines the results of this package's other modules. Source: CRI ContainerConfig, kubelet
`generateContainerConfig`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moorage.api.pods import Pod
from moorage.node.config.environment import Environment
from moorage.node.config.errors import ConfigError
from moorage.node.config.expansion import expand_all
from moorage.node.config.namespaces import namespaces
from moorage.node.config.resources import container_resources
from moorage.node.config.security import ImageUser, SecurityDefaults, container_security
from moorage.node.paths import container_log
from moorage.node.pod_facts.labels import AnyContainer, container_annotations, container_labels
from moorage.wire.cri import pb


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSetting:
    """Inputs of a container configuration besides its spec.

    `target` is the ID of the target container of an ephemeral container, whose processes it sees.
    """

    restart_count: int
    image_ref: str
    image_user: ImageUser
    environment: Environment
    mounts: Sequence[pb.Mount]
    security: SecurityDefaults
    memory_capacity_bytes: int
    oom_score_floor: int
    user_namespace: pb.UserNamespace | None = None
    target: str | None = None


def container_config(
    pod: Pod, container: AnyContainer, setting: ContainerSetting
) -> pb.ContainerConfig:
    """Return the CRI ContainerConfig. Raises ConfigError."""
    variables = setting.environment
    config = pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name=container.name, attempt=setting.restart_count),
        image=pb.ImageSpec(image=setting.image_ref, user_specified_image=container.image),
        command=expand_all(container.command, variables),
        args=expand_all(container.args, variables),
        working_dir=container.working_dir,
        envs=[
            pb.KeyValue(key=name, value=value.encode(errors="surrogateescape"))
            for name, value in variables.items()
        ],
        mounts=setting.mounts,
        labels=container_labels(pod, container),
        annotations=container_annotations(pod, container, setting.restart_count),
        log_path=container_log(container.name, setting.restart_count),
        stdin=container.stdin,
        stdin_once=container.stdin_once,
        tty=container.tty,
        linux=_linux(pod, container, setting),
    )
    stop_signal = container.lifecycle.stop_signal if container.lifecycle is not None else None
    if stop_signal:
        config.stop_signal = _signal(stop_signal)
    if setting.user_namespace is not None:
        for mount in config.mounts:
            mount.uidMappings.extend(setting.user_namespace.uids)
            mount.gidMappings.extend(setting.user_namespace.gids)
    return config


def _linux(pod: Pod, container: AnyContainer, setting: ContainerSetting) -> pb.LinuxContainerConfig:
    security = container_security(pod, container, setting.image_user, setting.security)
    security.namespace_options.CopyFrom(
        namespaces(pod.spec, setting.user_namespace, setting.target)
    )
    return pb.LinuxContainerConfig(
        resources=container_resources(
            pod,
            container,
            memory_capacity_bytes=setting.memory_capacity_bytes,
            oom_score_floor=setting.oom_score_floor,
        ),
        security_context=security,
    )


def _signal(name: str) -> pb.Signal.ValueType:
    try:
        return pb.Signal.Value(name)
    except ValueError:
        raise ConfigError(f'unknown stop signal "{name}"') from None
