"""The probes' image in an external engine, which has no call to load images.

containerd's own command imports archives, and skopeo copies them to CRI-O's storage. Where neither
is installed, the image is brought by hand: `moor image save`.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from moorage.cluster.host import gather
from moorage.cluster.images.archive import Image, write_archive
from moorage.cluster.images.building import catalogue
from moorage.cluster.images.catalogue import NoPauseError
from moorage.cluster.layout import Layout
from moorage.linux.command import CommandError, must_run
from moorage.runtimes.probing.programs import PROBE_IMAGE
from moorage.wire.cri import CriClient, CriError, pb

_DEADLINE_S = 120.0
_USUAL_STORAGE = Path("/var/lib/containers/storage")


class ImageUnavailableError(Exception):
    """The probes' image is not in an engine, and cannot be brought; the text says why."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"image {PROBE_IMAGE} is not in the engine ({why}): bring it with "
            f"`moor image save {PROBE_IMAGE} probe.tar` and the engine's own import"
        )


async def bring_image(cri: CriClient, layout: Layout) -> None:
    """Import the probes' image into an external engine that lacks it.

    Raises ImageUnavailableError.
    """
    try:
        version = await cri.call(cri.runtime.Version, pb.VersionRequest(version="0.1.0"))
        image = await _built(layout)
        spec = pb.ImageSpec(image=PROBE_IMAGE)
        status = await cri.call(cri.images.ImageStatus, pb.ImageStatusRequest(image=spec))
    except CriError as error:
        raise ImageUnavailableError(error.sentence) from error
    if status.image.id == image.id:
        return
    archive = layout.images / "probe.tar"
    socket = cri.endpoint.removeprefix("unix://")
    try:
        storage = await _storage(cri) if version.runtime_name == "cri-o" else ""
        await asyncio.to_thread(_write, archive, image)
        command = _import(version.runtime_name, socket, archive, storage)
        await must_run(command, deadline_s=_DEADLINE_S)
    except (CommandError, CriError, OSError, TimeoutError) as error:
        raise ImageUnavailableError(str(error)) from error
    finally:
        await asyncio.to_thread(archive.unlink, missing_ok=True)


async def _storage(cri: CriClient) -> str:
    """Return CRI-O's storage as containers-storage(5) spells it; empty for the usual one.

    It reports `ROOT/DRIVER-images`. Raises CriError.
    """
    info = await cri.call(cri.images.ImageFsInfo, pb.ImageFsInfoRequest())
    path = Path(next((one.fs_id.mountpoint for one in info.image_filesystems), ""))
    driver = path.name.removesuffix("-images")
    is_usual = path.parent == _USUAL_STORAGE or driver == path.name
    return "" if is_usual else f"[{driver}@{path.parent}]"


def _import(engine: str, socket: str, archive: Path, storage: str) -> list[str]:
    if engine == "containerd" and shutil.which("ctr"):
        return ["ctr", "--address", socket, "--namespace", "k8s.io", "images", "import",
                str(archive)]  # fmt: skip
    if engine == "cri-o" and shutil.which("skopeo"):
        source, target = f"oci-archive:{archive}", f"containers-storage:{storage}{PROBE_IMAGE}"
        return ["skopeo", "copy", "--quiet", source, target]
    raise ImageUnavailableError(f"no program here imports images into {engine}")


async def _built(layout: Layout) -> Image:
    tools = (await gather(layout.root)).tools
    paths = {name: tools[name].path for name in ("busybox", "catatonit") if name in tools}
    try:
        images = await catalogue(paths.get("busybox"), paths.get("catatonit"))
    except NoPauseError as error:
        raise ImageUnavailableError(str(error)) from error
    for image in images:
        if image.name == PROBE_IMAGE:
            return image
    raise ImageUnavailableError("it is built with busybox: apt-get install busybox-static")


def _write(path: Path, image: Image) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(write_archive([image]))
