"""From a container's configuration to a bundle a runtime can be given.

    image found → root file system mounted → image volumes mounted → user looked up in it
    → devices, mounts and profiles looked up → config.json

Everything that was made is undone when a later step fails. Source: CRI `CreateContainer`.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from moorage.cri import pb
from moorage.cri.reference import InvalidReferenceError, parse
from moorage.engine.containers.signals import spoken_signal, stop_signal
from moorage.engine.context import EngineContext
from moorage.engine.drivers import handler_traits
from moorage.engine.errors import InvalidError, NotFoundError, PreconditionError
from moorage.engine.images import Image
from moorage.engine.inventory import Inventory, Sandbox
from moorage.engine.oci import (
    ContainerRequest,
    Identity,
    ImageDefaults,
    look_up_container,
    resolve_identity,
)
from moorage.engine.records import ContainerRecord, User
from moorage.engine.sandboxes.context import id_mappings, sandbox_context
from moorage.engine.sandboxes.files import remove_files
from moorage.linux.private import make_private_for, write_private

ROOTFS = "rootfs"
_VOLUMES = "volumes"
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A container to be made. `config` is ours to change: image volumes get their places."""

    id: str
    config: pb.ContainerConfig
    sandbox: Sandbox


class BundleBuilder:
    """Makes bundles."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context

    async def make(self, order: Order) -> ContainerRecord:
        """Make the bundle; the container's first record. Raises EngineError, and leaves nothing."""
        async with AsyncExitStack() as undoing:
            record = await self._make(order, undoing)
            undoing.pop_all()
            return record

    async def unmake(self, container_id: str, image_mounts: tuple[str, ...]) -> None:
        """Remove a bundle and what it stands on; gone already is no error. Raises EngineError."""
        images, bundle = self._context.images, self._context.paths.bundle(container_id)
        for place in image_mounts:
            await images.unmount_image(Path(place))
        await images.unmount_rootfs(container_id, bundle / ROOTFS)
        await images.remove_rootfs(container_id)
        await asyncio.to_thread(remove_files, bundle)

    async def _make(self, order: Order, undoing: AsyncExitStack) -> ContainerRecord:
        context, config, sandbox = self._context, order.config, order.sandbox
        image = self._image(config)
        bundle = context.paths.bundle(order.id)
        mappings = id_mappings(sandbox.namespace_options)
        make_private_for(bundle, mappings)
        mounted: list[str] = []
        undoing.push_async_callback(self._unmake, order.id, mounted)
        await context.images.mount_rootfs(
            order.id,
            image,
            bundle / ROOTFS,
            id_mappings=mappings,
            snapshotter=sandbox.record.definition.snapshotter or "",
        )
        self._name_images(config)
        original = config.SerializeToString()
        await self._mount_images(config, bundle, mounted)
        options = config.linux.security_context.namespace_options
        target_pid = find_target_pid(options, context.inventory, sandbox)
        identity = await asyncio.to_thread(self._write_spec, order, image, bundle, target_pid)
        number = stop_signal(config.stop_signal, image.configuration.stop_signal)
        return ContainerRecord(
            id=order.id,
            sandbox_id=sandbox.id,
            config=original,
            image_id=image.id,
            image_ref=next(iter(image.digests), image.id),
            created_at_ns=context.now_ns(),
            user=User(identity.uid, identity.gid, identity.additional_gids),
            stop_signal=spoken_signal(number),
            log_path=_log_path(config, sandbox.config),
            image_mounts=tuple(mounted),
            image_name=_image_name(config, image),
        )

    def _write_spec(
        self, order: Order, image: Image, bundle: Path, target_pid: int | None
    ) -> Identity:
        """Write the bundle's `config.json`; who the container's process is. Blocks."""
        context, config, record = self._context, order.config, order.sandbox.record
        rootfs = bundle / ROOTFS
        traits = handler_traits(record.definition, record.features)
        security = config.linux.security_context
        identity = resolve_identity(security, image.configuration.user, rootfs)
        found = look_up_container(config, traits, context.host, context.cdi)
        request = ContainerRequest(
            id=order.id,
            config=config,
            sandbox=sandbox_context(context.paths, order.sandbox),
            image=_defaults(image),
            identity=identity,
            rootfs=rootfs,
            handler=traits,
            target_pid=target_pid,
            rlimits=context.options.rlimits,
        )
        document = context.specs.container(request, found)
        # The environment is in it, with secrets.
        write_private(bundle / "config.json", _encoder.encode(document))
        return identity

    async def _unmake(self, container_id: str, mounted: list[str]) -> None:
        await self.unmake(container_id, tuple(mounted))

    def _image(self, config: pb.ContainerConfig) -> Image:
        wanted = config.image.image
        if not wanted:
            raise InvalidError("container config names no image")
        try:
            return self._context.images.find(wanted)
        except NotFoundError as error:
            raise NotFoundError(f"image {wanted!r} is not present: pull it first") from error

    def _name_images(self, config: pb.ContainerConfig) -> None:
        """Write into the configuration which image each volume is, for the container's status."""
        for volume in config.mounts:
            if volume.image.image:
                volume.image.image_ref = self._context.images.find(volume.image.image).id

    async def _mount_images(
        self, config: pb.ContainerConfig, bundle: Path, mounted: list[str]
    ) -> None:
        """Mount the image volumes and write where they are into the configuration."""
        for number, volume in enumerate(config.mounts):
            if not volume.image.image:
                continue
            if not volume.readonly:
                raise InvalidError(
                    f"image volume {volume.container_path} must be read-only: set readonly: true"
                )
            place = bundle / _VOLUMES / str(number)
            mounted.append(str(place))
            await self._context.images.mount_image(
                self._context.images.find(volume.image.image_ref),
                place,
                sub_path=volume.image_sub_path,
            )
            volume.host_path = str(place)


def find_target_pid(
    options: pb.NamespaceOption, inventory: Inventory, sandbox: Sandbox
) -> int | None:
    """Return the first process of the container whose process namespace is to be joined.

    None when no container's is. Raises NotFoundError, InvalidError for a container of another
    pod, PreconditionError for one that does not run.
    """
    if options.pid != pb.TARGET:
        return None
    target = inventory.containers.find(options.target_id)
    if target.sandbox is not sandbox:
        raise InvalidError(f"target container {target.id} is not in sandbox {sandbox.id}")
    if not target.is_running:
        raise PreconditionError(f"target container {target.id} is not running")
    return target.record.pid


def _defaults(image: Image) -> ImageDefaults:
    told = image.configuration
    return ImageDefaults(
        user=told.user,
        env=told.env,
        entrypoint=told.entrypoint,
        command=told.command,
        working_dir=told.working_dir,
    )


def _log_path(config: pb.ContainerConfig, sandbox: pb.PodSandboxConfig) -> str:
    """Where output goes: nowhere unless both halves of the path are given."""
    if not config.log_path or not sandbox.log_directory:
        return ""
    return str(Path(sandbox.log_directory, config.log_path))


def _image_name(config: pb.ContainerConfig, image: Image) -> str:
    """The tag that was asked for if the image has it, else its first tag, else nothing."""
    asked = config.image.user_specified_image or config.image.image
    try:
        full = parse(asked).full
    except InvalidReferenceError:
        full = ""
    return full if full in image.tags else next(iter(image.tags), "")
