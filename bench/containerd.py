"""A containerd of its own, for the time of a measurement beside our engine."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from moorage.cluster.images import PAUSE
from moorage.linux.program import parse_version
from moorage.wire.cri import CriClient, CriError, pb
from tests.containerd_configuration import Configuration, RuntimeTable, write_configuration

_READY_S = 20.0


@asynccontextmanager
async def containerd(
    directory: Path, cni: Path, images: Path, handlers: tuple[str, ...]
) -> AsyncIterator[tuple[str, int]]:
    """Its CRI endpoint and process id; `images` is an archive that it imports.

    Everything of it is below the directory; its pods must be gone before the block ends.
    """
    socket = directory / "c.sock"
    configuration = Configuration(
        root=directory / "root",
        state=directory / "state",
        socket=socket,
        runtimes=tuple(
            RuntimeTable(handler=name, program=Path(_program(name)), root=directory / name)
            for name in handlers
        ),
        default_handler=handlers[0],
        sandbox_image=PAUSE,
        cni_programs=Path("/usr/lib/cni"),
        cni_configurations=cni,
        restricts_oom_score=True,
    )
    answer = subprocess.run(["containerd", "--version"], capture_output=True, text=True, check=True)
    version = parse_version(answer.stdout)
    if version is None:
        raise RuntimeError(f"containerd reports no version: {answer.stdout}")
    file = directory / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(write_configuration(configuration, version))
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(["containerd", "--config", file], stdout=log, stderr=log)
    try:
        await until_served(f"unix://{socket}")
        address = ["--address", str(socket), "--namespace", "k8s.io"]
        subprocess.run(
            ["ctr", *address, "images", "import", images], check=True, stdout=subprocess.DEVNULL
        )
        yield f"unix://{socket}", process.pid
    finally:
        process.terminate()
        process.wait()


async def until_served(endpoint: str) -> None:
    """Return when an engine answers there. Raises TimeoutError."""
    async with asyncio.timeout(_READY_S), CriClient(endpoint) as cri:
        while True:
            try:
                await cri.call(cri.runtime.Status, pb.StatusRequest())
            except CriError:
                await asyncio.sleep(0.05)
                continue
            return


def _program(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        raise RuntimeError(f"{name} is not on PATH")
    return program
