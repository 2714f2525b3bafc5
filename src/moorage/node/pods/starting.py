"""Container start: image, configuration, create, start, postStart hook.

Each failing step raises the kubelet's reason and message for the container's status, and records
its event. Source: kubelet `startContainer`.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from moorage.api.clock import Clock
from moorage.api.configuration import ConfigMap, Secret
from moorage.api.containers import EphemeralContainer
from moorage.api.errors import StatusError
from moorage.api.logs import Log
from moorage.api.pods import Pod
from moorage.api.services import Service
from moorage.linux.trust import make_private
from moorage.node.config.container import ContainerSetting, container_config, container_resources
from moorage.node.config.downward import DownwardInputs
from moorage.node.config.environment import (
    Environment,
    EnvironmentSources,
    container_environment,
    references,
    service_environment,
)
from moorage.node.config.errors import ConfigError
from moorage.node.config.security import (
    HOSTS_PATH,
    SecurityDefaults,
    host_network_hosts_file,
    hostname_of,
    hosts_file,
)
from moorage.node.images.pulling import FoundImage, ImagePuller
from moorage.node.metrics import Metrics
from moorage.node.objects import ObjectCache
from moorage.node.options import NodeOptions
from moorage.node.paths import NodePaths, PodPaths, legacy_log_link
from moorage.node.pod_facts.containers import Kind, Member
from moorage.node.pod_facts.errors import SyncError
from moorage.node.pod_facts.events import PodEvents
from moorage.node.pod_facts.labels import AnyContainer
from moorage.node.pods.hooks import HookError, Hooks
from moorage.node.pods.start_timeline import StartTimeline
from moorage.node.pods.user_namespaces import UserNamespaces
from moorage.node.runtime.engine import Engine
from moorage.node.runtime.observer import Observer
from moorage.node.runtime.views import ContainerView, PodView, SandboxView, State
from moorage.node.volumes.container_mounts import container_mounts
from moorage.node.volumes.kinds import IMAGE, Mounted
from moorage.node.volumes.mounting import Mounter
from moorage.node.volumes.subpath import check_subpath, open_inside
from moorage.runtimeclass import start_phases
from moorage.runtimeclass.overhead import is_sidecar
from moorage.wire.client.informer import Informer
from moorage.wire.client.recorder import NORMAL, WARNING
from moorage.wire.client.resources import CONFIG_MAPS, SECRETS
from moorage.wire.client.rest import UnreachableError
from moorage.wire.cri import CriError, pb

log = Log(__name__)

_FRESH_S = 1.0
_LOG_NAME = re.compile(r"(\d+)\.log(\..*)?")
_ENV_FILE_LIMIT = 64 * 1024


class HookFailedError(SyncError):
    """The container runs, but its postStart hook failed: it must be killed."""

    def __init__(self, message: str, container: ContainerView | None) -> None:
        super().__init__("PostStartHookError", message)
        self.container = container


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Pod-side inputs of a container start."""

    pod: Pod
    view: PodView
    sandbox: SandboxView
    sandbox_config: pb.PodSandboxConfig
    volumes: Mounted
    where: DownwardInputs
    has_recursive_read_only: bool
    timeline: StartTimeline


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStarter:
    """Starts containers on this node."""

    engine: Engine
    observer: Observer
    images: ImagePuller
    objects: ObjectCache
    services: Informer[Service]
    hooks: Hooks
    events: PodEvents
    metrics: Metrics
    mounter: Mounter
    user_namespaces: UserNamespaces
    clock: Clock
    options: NodeOptions
    paths: NodePaths
    security: SecurityDefaults
    memory_capacity_bytes: int

    async def start(self, launch: Launch, member: Member) -> None:
        """Start a container. Raises SyncError."""
        self.metrics.started_containers.count(container_type=member.kind.value)
        try:
            await self._start(launch, member)
        except SyncError as error:
            self.metrics.started_containers_errors.count(
                container_type=member.kind.value, code=error.reason
            )
            raise

    def resources_of(self, pod: Pod, container: AnyContainer) -> pb.LinuxContainerResources:
        """Return the resources of a container, as it is created with or resized to."""
        return container_resources(
            pod,
            container,
            memory_capacity_bytes=self.memory_capacity_bytes,
            oom_score_floor=self.options.oom_score_floor,
        )

    async def _start(self, launch: Launch, member: Member) -> None:
        pod, timeline, name = launch.pod, launch.timeline, member.name
        timeline.end_init()
        with timeline.step(start_phases.IMAGE, name):
            pull_secrets = await self._pull_secrets(pod)
            image = await self._image(launch, member, pull_secrets)
            volume_images = await self._volume_images(launch, member, pull_secrets)
        with timeline.step(start_phases.CREATE, name):
            count = await self._restart_count(launch, member)
            config = await self._config(launch, member, image, volume_images, count)
            container_id = await self._create(launch, member, config)
        with timeline.step(start_phases.START, name):
            await self._run(launch, member, container_id)
            if member.kind is Kind.INIT and not is_sidecar(member.container):  # type: ignore[arg-type]
                timeline.begin(start_phases.INIT)
            container = await self._refresh_view(launch, member, container_id)
            await asyncio.to_thread(self._link_log, pod, member, container_id, launch, config)
            await self._post_start(launch, member, container_id, container)

    async def _pull_secrets(self, pod: Pod) -> list[Secret]:
        pull_secrets: list[Secret] = []
        for reference in pod.spec.image_pull_secrets:
            try:
                secret = await self.objects.get(
                    SECRETS, pod.metadata.namespace, reference.name, max_age_s=_FRESH_S
                )
            except (StatusError, UnreachableError) as error:
                log.warning("pull secret unreadable", secret=reference.name, error=error)
                continue
            if secret is None:
                self.events.pod(
                    pod, WARNING, "FailedToRetrieveImagePullSecret",
                    f"Unable to retrieve some image pull secrets ({reference.name}); attempting "
                    "to pull the image may not succeed.",
                )  # fmt: skip
            else:
                pull_secrets.append(secret)
        return pull_secrets

    async def _image(self, launch: Launch, member: Member, secrets: Sequence[Secret]) -> FoundImage:
        try:
            return await self.images.ensure(launch.pod, member, secrets, launch.sandbox_config)
        except SyncError as error:
            self._failed(launch, member, error.reason)
            raise

    async def _volume_images(
        self, launch: Launch, member: Member, secrets: Sequence[Secret]
    ) -> dict[str, pb.ImageSpec]:
        """Pull the images that the container mounts as volumes, and return them by volume name."""
        wanted = {mount.name for mount in member.container.volume_mounts}
        images: dict[str, pb.ImageSpec] = {}
        for volume in launch.pod.spec.volumes:
            mounted = launch.volumes.get(volume.name)
            is_wanted = volume.name in wanted and mounted is not None and mounted.kind == IMAGE
            if not is_wanted or volume.image is None:
                continue
            try:
                image = await self.images.ensure_image(
                    launch.pod, member, volume.image.reference,
                    volume.image.pull_policy or "IfNotPresent", secrets, launch.sandbox_config,
                )  # fmt: skip
            except SyncError as error:
                self._failed(launch, member, error.reason)
                raise
            images[volume.name] = pb.ImageSpec(
                image=image.reference, user_specified_image=volume.image.reference
            )
        return images

    async def _restart_count(self, launch: Launch, member: Member) -> int:
        """Return one more than the predecessor's restart count.

        Without a predecessor, the log files of removed containers count.
        """
        before = launch.view.latest(member.name)
        if before is None:
            meta = launch.pod.metadata
            logs = self.paths.pod_logs(meta.namespace, meta.name, meta.uid) / member.name
            return await asyncio.to_thread(_count_by_logs, logs)
        if before.state is not State.CREATED:
            return before.restart_count + 1
        # It was never started: an earlier agent ended between create and start.
        try:
            await self.engine.remove_container(before.id)
        except CriError as error:
            raise SyncError("CreateContainerError", error.sentence) from error
        self.observer.forget_container(before.id)
        return before.restart_count

    async def _config(
        self,
        launch: Launch,
        member: Member,
        image: FoundImage,
        volume_images: Mapping[str, pb.ImageSpec],
        count: int,
    ) -> pb.ContainerConfig:
        try:
            environment = await self._environment(launch, member)
            mounts = await asyncio.to_thread(
                self._mounts, launch, member, environment, volume_images
            )
            user_namespace = None
            if launch.pod.spec.host_users is False:
                user_namespace = await self.user_namespaces.of(launch.pod)
            setting = ContainerSetting(
                restart_count=count,
                image_ref=image.reference,
                image_user=image.user,
                environment=environment,
                mounts=mounts,
                security=self.security,
                memory_capacity_bytes=self.memory_capacity_bytes,
                oom_score_floor=self.options.oom_score_floor,
                user_namespace=user_namespace,
                target=_target(launch, member),
            )
            return container_config(launch.pod, member.container, setting)
        except (ConfigError, StatusError, UnreachableError, OSError) as error:
            self._failed(launch, member, str(error))
            raise SyncError("CreateContainerConfigError", str(error)) from error

    async def _environment(self, launch: Launch, member: Member) -> Environment:
        pod = launch.pod
        namespace = pod.metadata.namespace
        await self.services.wait_synced()
        needed = references([member.container])
        config_maps: dict[str, ConfigMap | None] = {}
        secrets: dict[str, Secret | None] = {}
        for name in needed.config_maps:
            config_maps[name] = await self.objects.get(
                CONFIG_MAPS, namespace, name, max_age_s=_FRESH_S
            )
        for name in needed.secrets:
            secrets[name] = await self.objects.get(SECRETS, namespace, name, max_age_s=_FRESH_S)
        links = service_environment(
            self.services,
            namespace,
            has_links=pod.spec.enable_service_links is not False,
            overrides=self.options.service_environment,
        )
        sources = EnvironmentSources(
            services=links,
            config_maps=config_maps,
            secrets=secrets,
            read_env_file=lambda volume, path: _env_file(launch.volumes, volume, path),
        )
        return container_environment(pod, member.container, sources, launch.where)

    def _mounts(
        self,
        launch: Launch,
        member: Member,
        environment: Environment,
        volume_images: Mapping[str, pb.ImageSpec],
    ) -> list[pb.Mount]:
        """Return the mounts: volumes, /etc/hosts and the termination message file. Blocks.

        The latter two are left out inside a bidirectional mount, where they would cover the host's
        own files, and stay there.
        """
        container, paths = member.container, self.paths.pod(launch.pod.metadata.uid)
        mounts = container_mounts(
            container,
            launch.volumes,
            volume_images,
            environment,
            paths,
            self.mounter,
            has_recursive_read_only=launch.has_recursive_read_only,
        )
        shared = [
            mount.container_path
            for mount in mounts
            if mount.propagation == pb.PROPAGATION_BIDIRECTIONAL
        ]
        is_taken = any(mount.container_path == HOSTS_PATH for mount in mounts)
        if not is_taken and not _is_inside(HOSTS_PATH, shared):
            mounts.append(self._hosts(launch, paths))
        message_path = container.termination_message_path
        if message_path and not _is_inside(message_path, shared):
            mounts.append(_message_file(paths.container(container.name), message_path))
        return mounts

    def _hosts(self, launch: Launch, paths: PodPaths) -> pb.Mount:
        spec = launch.pod.spec
        if spec.host_network:
            text = host_network_hosts_file(Path(HOSTS_PATH).read_text(), spec.host_aliases)
        else:
            hostname = hostname_of(launch.pod, self.options.cluster_domain)
            text = hosts_file(hostname, launch.sandbox.ips, spec.host_aliases)
        make_private(paths.root)
        # Written in place: running containers have this inode mounted.
        paths.hosts_file.write_text(text)
        paths.hosts_file.chmod(0o644)
        return pb.Mount(
            container_path=HOSTS_PATH, host_path=str(paths.hosts_file), selinux_relabel=True
        )

    async def _create(self, launch: Launch, member: Member, config: pb.ContainerConfig) -> str:
        log_file = Path(launch.sandbox_config.log_directory) / config.log_path
        try:
            await asyncio.to_thread(log_file.parent.mkdir, parents=True, exist_ok=True)
            container_id = await self.engine.create_container(
                launch.sandbox.id, config, launch.sandbox_config
            )
        except CriError as error:
            self._failed(launch, member, error.sentence)
            raise SyncError("CreateContainerError", error.sentence) from error
        except OSError as error:
            why = f"create container log directory for container {member.name} failed: {error}"
            self._failed(launch, member, why)
            raise SyncError("CreateContainerConfigError", why) from error
        self.events.container(launch.pod, member, NORMAL, "Created", "Container created")
        return container_id

    async def _run(self, launch: Launch, member: Member, container_id: str) -> None:
        try:
            await self.engine.start_container(container_id)
        except CriError as error:
            self._failed(launch, member, error.sentence, container_id=container_id)
            # The engine keeps the container, in state exited.
            await self._refresh_view(launch, member, container_id)
            raise SyncError("RunContainerError", error.sentence) from error
        self.events.container(launch.pod, member, NORMAL, "Started", "Container started")

    async def _refresh_view(
        self, launch: Launch, member: Member, container_id: str
    ) -> ContainerView | None:
        try:
            return await self.observer.refresh_container(container_id, launch.sandbox.id)
        except CriError as error:
            log.warning("container not readable", container=member.name, error=error)
            return None

    def _link_log(
        self,
        pod: Pod,
        member: Member,
        container_id: str,
        launch: Launch,
        config: pb.ContainerConfig,
    ) -> None:
        """Link the log under the flat name that log shippers read. Blocks."""
        directory = self.options.container_logs_dir
        target = Path(launch.sandbox_config.log_directory) / config.log_path
        if directory is None or not target.exists():
            return
        meta = pod.metadata
        link = directory / legacy_log_link(meta.name, meta.namespace, member.name, container_id)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(target)
        except OSError as error:
            log.warning("log link not made", link=link, error=error)

    async def _post_start(
        self,
        launch: Launch,
        member: Member,
        container_id: str,
        container: ContainerView | None,
    ) -> None:
        lifecycle = member.container.lifecycle
        if lifecycle is None or lifecycle.post_start is None:
            return
        address = launch.sandbox.ips[0] if launch.sandbox.ips else self.options.node_ip
        try:
            await self.hooks.run(
                launch.pod, member.container, container_id, lifecycle.post_start, address
            )
        except HookError as error:
            log.warning("postStart hook failed", container=member.name, error=error)
            # A hook's output may be secret: it goes into the status, not into an event.
            self.events.container(
                launch.pod, member, WARNING, "FailedPostStartHook", "PostStartHook failed"
            )
            raise HookFailedError(str(error), container) from error

    def _failed(self, launch: Launch, member: Member, why: str, *, container_id: str = "") -> None:
        self.events.container(
            launch.pod, member, WARNING, "Failed", f"Error: {why}", container_id=container_id
        )


def _target(launch: Launch, member: Member) -> str | None:
    """Return the ID of an ephemeral container's target. Raises ConfigError."""
    container = member.container
    if not isinstance(container, EphemeralContainer) or not container.target_container_name:
        return None
    target = launch.view.latest(container.target_container_name)
    if target is None:
        raise ConfigError(f"unable to find target container {container.target_container_name}")
    return target.id


def _is_inside(path: str, directories: Iterable[str]) -> bool:
    """Return whether a path in a container is at or below one of these."""
    place = _normal(path)
    return any(place.is_relative_to(_normal(directory)) for directory in directories)


def _normal(path: str) -> PurePosixPath:
    # A leading `//` is distinct in POSIX, not in Linux.
    return PurePosixPath(posixpath.normpath("/" + path.lstrip("/")))


def _message_file(directory: Path, path: str) -> pb.Mount:
    make_private(directory)
    file = directory / secrets.token_hex(4)
    file.touch()
    # Any user that the container runs as must be able to write it.
    file.chmod(0o666)
    return pb.Mount(
        host_path=str(file), container_path=path if path.startswith("/") else f"/{path}"
    )


def _count_by_logs(directory: Path) -> int:
    if not directory.is_dir():
        return 0
    matches = (_LOG_NAME.fullmatch(entry.name) for entry in directory.iterdir())
    return max((int(match[1]) + 1 for match in matches if match is not None), default=0)


def _env_file(volumes: Mounted, volume: str, path: str) -> str:
    mounted = volumes.get(volume)
    if mounted is None or mounted.path is None:
        raise ConfigError(f'cannot find the volume "{volume}" referenced by FileKeyRef')
    descriptor = open_inside(mounted.path, check_subpath(path))
    try:
        with open(f"/proc/self/fd/{descriptor}", "rb") as file:
            return file.read(_ENV_FILE_LIMIT).decode(errors="replace")
    except OSError as error:
        raise ConfigError(f'couldn\'t read env file "{path}": {error.strerror}') from error
    finally:
        os.close(descriptor)
