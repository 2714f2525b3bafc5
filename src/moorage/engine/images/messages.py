"""CRI messages of images. Pure. Source: CRI Image, FilesystemUsage."""

from __future__ import annotations

import json

from moorage.engine.images.image import Image
from moorage.engine.images.usage import FilesystemUsage
from moorage.wire.cri import pb


def image_message(image: Image) -> pb.Image:
    """Return an image's message in `ListImages`."""
    message = pb.Image(
        id=image.id,
        repo_tags=image.tags,
        repo_digests=image.digests,
        size=image.size_bytes,
        username=image.username,
        pinned=image.is_pinned,
    )
    if image.uid is not None:
        message.uid.value = image.uid
    return message


def usage_message(usage: FilesystemUsage) -> pb.FilesystemUsage:
    """Return the usage of a file system, which kubelets read for evictions."""
    return pb.FilesystemUsage(
        timestamp=usage.timestamp_ns,
        fs_id=pb.FilesystemIdentifier(mountpoint=str(usage.mountpoint)),
        used_bytes=pb.UInt64Value(value=usage.used_bytes),
        inodes_used=pb.UInt64Value(value=usage.inodes),
    )


def verbose_info(image: Image, configuration: bytes) -> dict[str, str]:
    """Return the verbose info that `crictl inspecti` shows; the keys are containerd's."""
    shown = {"imageSpec": json.loads(configuration), "layers": image.layers}
    return {"info": json.dumps(shown)}
