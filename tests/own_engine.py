"""`moor engine` on directories of its own: started as a service manager would, and taken away
again.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from moorage.cluster.engine.sweep import remove_directory
from moorage.cluster.images import catalogue, write_archive
from moorage.cluster.images.loading import load_archive
from moorage.cluster.network import PodNetwork, forget
from moorage.cluster.network.subnet import write_conflist
from tests.forks import Fork, run
from tests.subnets import engine_mark, free_subnet

DEADLINE_S = 30.0


@dataclass(frozen=True)
class OwnEngine:
    """Directories of one engine. They are short, since sockets are in them."""

    root: Path

    @property
    def endpoint(self) -> str:
        return f"unix://{self.root}/e.sock"

    def command(self, *more: str) -> list[str]:
        """`moor engine` on these directories, as a module and its arguments."""
        directories = {"data-dir": "d", "run-dir": "r", "handlers-dir": "h", "cni-conf": "c"}
        options = [
            word
            for name, directory in directories.items()
            for word in (f"--{name}", str(self.root / directory))
        ]
        return ["moorage.cli", "engine", "--listen", self.endpoint, *options, *more]

    def clear(self) -> None:
        """Have it end its pods and give back its networks. It may not run."""
        cleared = run(*self.command("--clear"), timeout_s=DEADLINE_S)
        assert cleared.returncode == 0, cleared.stderr

    @contextmanager
    def started(self, log: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Start it, as a service manager would, and wait until it says that it is ready."""
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices,
            log.open("wb") as log_file,
        ):
            address = self.root / "notify"
            address.unlink(missing_ok=True)
            notices.bind(str(address))
            notices.settimeout(DEADLINE_S)
            process = Fork(
                self.command(), stderr=log_file,
                env=os.environ | {"NOTIFY_SOCKET": str(address)},
            )  # fmt: skip
            try:
                assert notices.recv(100) == b"READY=1"
                yield process
            finally:
                process.kill()
                process.wait()


@contextmanager
def engine_directories() -> Iterator[OwnEngine]:
    """Directories for an engine without a network, gone at the end."""
    root = Path(tempfile.mkdtemp(prefix="moor-"))
    (root / "c").mkdir()
    try:
        yield OwnEngine(root)
    finally:
        remove_directory(root)


@contextmanager
def running_engine() -> Iterator[str]:
    """The endpoint of an engine with the catalogue's images and a network of its own."""
    with engine_directories() as engine:
        network = PodNetwork(
            cluster_id=engine_mark(),
            subnet=free_subnet(),
            leases=engine.root / "leases",
            mtu=1500,
        )
        (engine.root / "c" / "10-test.conflist").write_text(write_conflist(network, None))
        try:
            with engine.started(engine.root / "log"):
                asyncio.run(_load_images(engine))
                yield engine.endpoint
        finally:
            engine.clear()
            link = ["ip", "link", "delete", network.bridge]
            subprocess.run(link, capture_output=True, check=False)
            forget(network)


async def _load_images(engine: OwnEngine) -> None:
    busybox, catatonit = shutil.which("busybox"), shutil.which("catatonit")
    images = await catalogue(
        Path(busybox) if busybox else None, Path(catatonit) if catatonit else None
    )
    archive = engine.root / "images.tar"
    archive.write_bytes(write_archive(images))
    await load_archive(engine.endpoint, archive)
