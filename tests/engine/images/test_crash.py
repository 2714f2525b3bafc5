"""A store killed at any moment is whole when it is opened again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from moorage.engine.images.store import ImagePaths, ImageStore
from tests.engine.images.builds import Entry, layer, oci_archive

_BUSY = """
import asyncio, sys
from pathlib import Path
from moorage.engine.images.store import ImagePaths, ImageStore

async def main(place):
    async with ImageStore(ImagePaths(place / "data", place / "run")) as images:
        print("ready", flush=True)
        while True:
            for archive in sorted(place.glob("*.tar")):
                (image,) = await images.load(archive)
                await images.mount_rootfs("c1", image, place / "root")
                await images.unmount_rootfs("c1", place / "root")
                await images.remove_rootfs("c1")
            await images.remove(image.id)

asyncio.run(main(Path(sys.argv[1])))
"""
_KILLS = 12


async def test_a_store_killed_while_busy_is_whole_afterwards(
    paths: ImagePaths, place: Path
) -> None:
    shared = layer(Entry("shared", os.urandom(300_000)))
    for number in range(3):
        own = layer(Entry("own", b"%d" % number * 100_000))
        oci_archive(place / f"{number}.tar", [f"localhost/a:{number}"], [shared, own])
    for number in range(_KILLS):
        await asyncio.to_thread(_killed_after, place, 0.013 * number)
        async with ImageStore(paths) as images:
            await images.recover(())
            _check(images, place)
            for image in images.all():
                await images.mount_rootfs("c2", image, place / "check")
                assert (place / "check/shared").stat().st_size == 300_000
                await images.unmount_rootfs("c2", place / "check")
                await images.remove_rootfs("c2")


def _check(images: ImageStore, place: Path) -> None:
    needed = {layer.removeprefix("sha256:") for image in images.all() for layer in image.layers}
    data = place / "data"
    assert set(os.listdir(data / "layers")) == needed
    assert {f"sha256:{name}" for name in os.listdir(data / "configurations")} == {
        image.id for image in images.all()
    }
    assert os.listdir(data / "containers") == []
    assert os.listdir(data / "ingest") == []


def _killed_after(place: Path, pause_s: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _BUSY, str(place)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "ready\n"
        # Not to wait for something: the moment of the kill is what varies.
        time.sleep(pause_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
