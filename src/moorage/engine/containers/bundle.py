"""Container bundles: from a `ContainerConfig` to a directory that an OCI runtime runs.

    find the image → mount the root file system → mount image volumes → fill the volumes that the
    image declares → resolve the user in it → look up devices, mounts and profiles
    → write config.json

A failed step removes all that the earlier steps created. Source: CRI `CreateContainer`.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from moorage.engine.containers.declared_volumes import choose_volumes
from moorage.engine.containers.signals import cri_signal_name, stop_signal
from moorage.engine.context import EngineContext
from moorage.engine.drivers import handler_traits
from moorage.engine.errors import InvalidError, NotFoundError, PreconditionError
from moorage.engine.images.image import Image
from moorage.engine.images.manifest import Platform
from moorage.engine.images.modules import MODULE_PLATFORM
from moorage.engine.images.store import ImageStore
from moorage.engine.inventory import Container, Inventory, Sandbox, container_name, new_id
from moorage.engine.oci import (
    ContainerRequest,
    Identity,
    ImageDefaults,
    look_up_container,
    resolve_identity,
)
from moorage.engine.records import ContainerRecord, User
from moorage.linux.idmap import IdMappings
from moorage.linux.trees import remove_tree
from moorage.linux.trust import make_private_for, write_private
from moorage.wire.cri import pb
from moorage.wire.cri.reference import InvalidReferenceError, parse

ROOTFS = "rootfs"
_VOLUMES = "volumes"
_encoder = msgspec.json.Encoder()


async def create_bundle(
    context: EngineContext, container_id: str, config: pb.ContainerConfig, sandbox: Sandbox
) -> ContainerRecord:
    """Create a container's bundle. Returns its first record.

    Changes `config`: image volumes get their host paths, and the paths that the image declares as
    volumes their mounts. Raises EngineError; leaves nothing behind then.
    """
    async with AsyncExitStack() as cleanup:
        record = await _create(context, container_id, config, sandbox, cleanup)
        cleanup.pop_all()
        return record


async def remove_bundle(
    context: EngineContext, container_id: str, image_mounts: tuple[str, ...]
) -> None:
    """Remove a bundle with its mounts and root file system; absent is no error.

    Raises EngineError, OSError.
    """
    images, bundle = context.images, context.paths.bundle(container_id)
    for mount_point in image_mounts:
        await images.unmount_image(Path(mount_point))
    await images.unmount_rootfs(container_id, bundle / ROOTFS)
    await images.remove_rootfs(container_id)
    await asyncio.to_thread(remove_tree, bundle)


async def _create(
    context: EngineContext,
    container_id: str,
    config: pb.ContainerConfig,
    sandbox: Sandbox,
    cleanup: AsyncExitStack,
) -> ContainerRecord:
    image = _find_image(context.images, config)
    _verify_platform(image, sandbox)
    bundle = context.paths.bundle(container_id)
    mappings = sandbox.id_mappings
    make_private_for(bundle, mappings)
    mounted: list[str] = []

    async def remove() -> None:
        await remove_bundle(context, container_id, tuple(mounted))

    cleanup.push_async_callback(remove)
    await context.images.mount_rootfs(
        container_id,
        image,
        bundle / ROOTFS,
        id_mappings=mappings,
        snapshotter=sandbox.record.definition.snapshotter or "",
    )
    _resolve_image_volumes(context.images, config)
    original = config.SerializeToString()
    await _mount_image_volumes(context.images, config, bundle, mounted)
    await _add_declared_volumes(context.images, container_id, config, image, bundle, mappings)
    options = config.linux.security_context.namespace_options
    target_pid = find_target_pid(options, context.inventory, sandbox)
    identity = await asyncio.to_thread(
        _write_spec, context, container_id, config, sandbox, image, target_pid
    )
    number = stop_signal(config.stop_signal, image.configuration.stop_signal)
    return ContainerRecord(
        id=container_id,
        sandbox_id=sandbox.id,
        config=original,
        image_id=image.id,
        image_ref=next(iter(image.digests), image.id),
        created_at_ns=context.now_ns(),
        user=User(identity.uid, identity.gid, identity.additional_gids),
        stop_signal=cri_signal_name(number),
        log_path=_log_path(config, sandbox.config),
        image_mounts=tuple(mounted),
        image_name=image_tag(config, image),
    )


def _write_spec(
    context: EngineContext,
    container_id: str,
    config: pb.ContainerConfig,
    sandbox: Sandbox,
    image: Image,
    target_pid: int | None,
) -> Identity:
    """Write the bundle's `config.json`. Returns the process's user and groups. Blocks."""
    bundle = context.paths.bundle(container_id)
    rootfs = bundle / ROOTFS
    traits = handler_traits(sandbox.record.definition, sandbox.record.features)
    security = config.linux.security_context
    identity = resolve_identity(security, image.configuration.user, rootfs)
    findings = look_up_container(config, traits, context.host, context.cdi)
    request = ContainerRequest(
        id=container_id,
        config=config,
        sandbox=sandbox.spec_context(context.paths),
        image=_image_defaults(image),
        identity=identity,
        rootfs=rootfs,
        handler=traits,
        target_pid=target_pid,
        rlimits=context.options.rlimits,
    )
    document = context.specs.container(request, findings)
    # The container's environment holds secrets.
    write_private(bundle / "config.json", _encoder.encode(document))
    return identity


def _find_image(images: ImageStore, config: pb.ContainerConfig) -> Image:
    reference = config.image.image
    if not reference:
        raise InvalidError("container config names no image")
    try:
        return images.find(reference)
    except NotFoundError as error:
        raise NotFoundError(f"image {reference!r} is not present: pull it first") from error


def _verify_platform(image: Image, sandbox: Sandbox) -> None:
    """Raise InvalidError for a WebAssembly image under a handler that does not run such images."""
    record = sandbox.record
    if image.platform not in MODULE_PLATFORM.names:
        return
    platform = record.definition.platform
    if not platform or image.platform not in Platform.parse(platform).names:
        raise InvalidError(
            f"image {image.name} is for {image.platform}, which runtime handler "
            f"{record.handler or record.definition.name!r} does not run; use a RuntimeClass whose "
            'handler file has `platform = "wasi/wasm"`'
        )


def _resolve_image_volumes(images: ImageStore, config: pb.ContainerConfig) -> None:
    """Set `image_ref` of the image volumes, which the container's status shows."""
    for volume in config.mounts:
        if volume.image.image:
            volume.image.image_ref = images.find(volume.image.image).id


async def _mount_image_volumes(
    images: ImageStore, config: pb.ContainerConfig, bundle: Path, mounted: list[str]
) -> None:
    """Mount the image volumes and set their host paths in the configuration."""
    for number, volume in enumerate(config.mounts):
        if not volume.image.image:
            continue
        if not volume.readonly:
            raise InvalidError(
                f"image volume {volume.container_path} must be read-only: set readonly: true"
            )
        mount_point = bundle / _VOLUMES / str(number)
        mounted.append(str(mount_point))
        await images.mount_image(
            images.find(volume.image.image_ref), mount_point, sub_path=volume.image_sub_path
        )
        volume.host_path = str(mount_point)


async def _add_declared_volumes(
    images: ImageStore,
    container_id: str,
    config: pb.ContainerConfig,
    image: Image,
    bundle: Path,
    mappings: IdMappings | None,
) -> None:
    """Mount a directory of the container at each path that the image declares as a volume.

    Source: containerd, which does so; CRI-O only creates the directories.
    """
    if not image.configuration.volumes:
        return
    rootfs = bundle / ROOTFS
    requested = [mount.container_path for mount in config.mounts]
    places = await asyncio.to_thread(
        choose_volumes, image.name, image.configuration.volumes, requested, rootfs
    )
    contents = [rootfs.joinpath(place[1:]) for place in places]
    volumes = await images.create_volumes(container_id, contents, id_mappings=mappings)
    for place, volume in zip(places, volumes, strict=True):
        config.mounts.add(container_path=place, host_path=str(volume))


def find_target_pid(
    options: pb.NamespaceOption, inventory: Inventory, sandbox: Sandbox
) -> int | None:
    """Return the first process of the container whose PID namespace is to be joined.

    None without such a target. Raises NotFoundError, InvalidError for a container of another pod,
    PreconditionError for one that does not run.
    """
    if options.pid != pb.TARGET:
        return None
    target = inventory.containers.find(options.target_id)
    if target.sandbox is not sandbox:
        raise InvalidError(f"target container {target.id} is not in sandbox {sandbox.id}")
    if not target.is_running:
        raise PreconditionError(f"target container {target.id} is not running")
    return target.record.pid


def image_tag(config: pb.ContainerConfig, image: Image) -> str:
    """Return the requested tag if the image has it, else its first tag, else nothing."""
    requested = config.image.user_specified_image or config.image.image
    try:
        full = parse(requested).full
    except InvalidReferenceError:
        full = ""
    return full if full in image.tags else next(iter(image.tags), "")


def _image_defaults(image: Image) -> ImageDefaults:
    configuration = image.configuration
    return ImageDefaults(
        user=configuration.user,
        env=configuration.env,
        entrypoint=configuration.entrypoint,
        command=configuration.command,
        working_dir=configuration.working_dir,
    )


def _log_path(config: pb.ContainerConfig, sandbox: pb.PodSandboxConfig) -> str:
    """Return the log file; empty unless both halves of the path are set."""
    if not config.log_path or not sandbox.log_directory:
        return ""
    return str(Path(sandbox.log_directory, config.log_path))


# CreateContainer: reserve the name, create the bundle, record the container.
#
# Source: CRI `CreateContainer`.


async def create_container(
    context: EngineContext,
    sandbox: Sandbox,
    config: pb.ContainerConfig,
    sandbox_config: pb.PodSandboxConfig | None = None,
) -> Container:
    """Create a container in a sandbox. Raises EngineError; leaves nothing behind then.

    `sandbox_config` is the request's: the pod as it is now, where a debug container may be
    privileged that was not there when the sandbox was made. None is the sandbox's own.
    """
    if not config.metadata.name:
        raise InvalidError("container config must have metadata with a name")
    _verify_privilege(config, sandbox, sandbox_config or sandbox.config)
    # A sandbox that is being stopped must not get another container meanwhile.
    async with sandbox.lock:
        container = await _created(context, sandbox, config)
    context.publish_container_event(container, pb.CONTAINER_CREATED_EVENT)
    return container


async def _created(
    context: EngineContext, sandbox: Sandbox, config: pb.ContainerConfig
) -> Container:
    if not sandbox.record.is_ready:
        raise PreconditionError(f"sandbox {sandbox.id} is not ready: run a new one")
    inventory, container_id = context.inventory, new_id()
    with inventory.containers.reserved(container_name(sandbox.id, config), container_id):
        record = await create_bundle(context, container_id, config, sandbox)
        container = Container(record, sandbox)
        async with AsyncExitStack() as cleanup:
            cleanup.push_async_callback(remove_bundle, context, container_id, record.image_mounts)
            inventory.save_container(container, record)
            cleanup.pop_all()
    return container


def _verify_privilege(
    config: pb.ContainerConfig, sandbox: Sandbox, allowed: pb.PodSandboxConfig
) -> None:
    """Raise InvalidError for a privileged container in a pod without any. Source: containerd."""
    if not config.linux.security_context.privileged:
        return
    if not allowed.linux.security_context.privileged:
        raise InvalidError(
            f"no privileged container allowed in sandbox {sandbox.id}: container "
            f"{config.metadata.name!r} requests it; set privileged in the request's sandbox_config"
        )
