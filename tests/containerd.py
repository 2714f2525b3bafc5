"""A containerd of the tests' own: for clusters on another's engine (`--cri`), and to compare with.

All it keeps is in one directory, but its pods' bridge; both are gone at the end, pods first.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from moorage.cluster.engine.sweep import remove_directory
from moorage.cluster.host import Inventory, gather
from moorage.cluster.images import PAUSE, catalogue, write_archive
from moorage.cluster.network import PodNetwork, forget
from moorage.cluster.network.subnet import write_conflist
from moorage.engine.handlers import discover
from moorage.linux.process import descendants, state
from moorage.wire.cri import CriClient, CriError, pb
from tests.containerd_configuration import NATIVE, OVERLAYFS, Configuration, write_configuration
from tests.containerd_configuration.discovery import find_containerd, under_containerd
from tests.containerd_configuration.tables import default_handler, runtime_tables
from tests.peers import required_peer
from tests.running import until
from tests.subnets import engine_mark, free_subnet

_NEEDED = ("containerd", "ctr", "containerd-shim-runc-v2")
_PEERS = {
    "containerd": "containerd-2",
    "ctr": "ctr-2",
    "containerd-shim-runc-v2": "containerd-shim-runc-v2",
}
_NAMESPACE = "k8s.io"
_END_S = 20.0


def skip_without_containerd() -> None:
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: `make packages` brings them")


@contextmanager
def newer_containerd() -> Iterator[Path]:
    """A directory with the programs of a containerd 2.x; the test is skipped without them."""
    with tempfile.TemporaryDirectory(prefix="moor-ctd2-") as directory:
        for name, built in _PEERS.items():
            (Path(directory) / name).symlink_to(required_peer(built))
        yield Path(directory)


@dataclass(frozen=True)
class StartedContainerd:
    """A running containerd: its files and its log are below `root`."""

    root: Path
    path: str
    """The search path, on which its programs are."""

    @property
    def endpoint(self) -> str:
        return f"unix://{self.root}/c.sock"

    @property
    def main(self) -> Path:
        """Its configuration."""
        return self.root / "config.toml"

    @property
    def restart_command(self) -> str:
        """What restarts it, as a service manager would: its shims go on."""
        return f"{self.root}/restart"

    def start(self) -> None:
        """Start it in the background; its process ID is in a file."""
        subprocess.run([self.root / "start"], check=True)

    def pid(self) -> int:
        return int((self.root / "pid").read_text())

    def write_scripts(self) -> None:
        start = (
            f"#!/bin/sh\nexport PATH={self.path}\n"
            f"setsid containerd --config {self.main} >>{self.root}/log 2>&1 </dev/null &\n"
            f"echo $! >{self.root}/pid\n"
        )
        restart = (
            f"#!/bin/sh\npid=$(cat {self.root}/pid)\nkill $pid 2>/dev/null\n"
            f"while kill -0 $pid 2>/dev/null; do sleep 0.05; done\nexec {self.root}/start\n"
        )
        for name, text in {"start": start, "restart": restart}.items():
            (self.root / name).write_text(text)
            (self.root / name).chmod(0o755)


@contextmanager
def running_containerd() -> Iterator[str]:
    """The endpoint of a containerd with the catalogue's images and a network of its own."""
    with started_containerd() as containerd:
        yield containerd.endpoint


@contextmanager
def started_containerd(programs: Path | None = None) -> Iterator[StartedContainerd]:
    """The same, which can be restarted; its programs are in a directory, or on PATH."""
    # Short: the kernel takes no socket path over 107 bytes.
    root = Path(tempfile.mkdtemp(prefix="moor-ctd-"))
    mark = engine_mark()
    network = PodNetwork(
        cluster_id=mark,
        subnet=free_subnet(),
        leases=root / "leases",
        mtu=1500,
    )
    try:
        host = asyncio.run(gather(root))
        path = host.path if programs is None else f"{programs}:{host.path}"
        containerd = StartedContainerd(root, path)
        containerd.main.write_text(asyncio.run(_configuration(root, host, path)))
        (root / "cni").mkdir()
        (root / "cni" / "10-test.conflist").write_text(write_conflist(network, None))
        containerd.write_scripts()
        containerd.start()
        socket = root / "c.sock"
        try:
            until(lambda: answers(containerd.endpoint), f"containerd, see {root}/log")
            _import_images(root, host, socket, path)
            yield containerd
            asyncio.run(remove_sandboxes(containerd.endpoint))
        finally:
            _end(containerd.pid(), socket)
    finally:
        remove_directory(root)
        subprocess.run(["ip", "link", "delete", network.bridge], capture_output=True, check=False)
        forget(network)


async def _configuration(root: Path, host: Inventory, path: str) -> str:
    """Its text, with the handlers that this machine has under containerd."""
    containerd = await find_containerd(path)
    assert containerd is not None
    handlers = under_containerd(await discover(host.machine, path=host.path), containerd)
    assert host.cni.directory is not None
    configuration = Configuration(
        root=root / "root",
        state=root / "state",
        socket=root / "c.sock",
        runtimes=runtime_tables(handlers, root / "runtimes"),
        default_handler=default_handler(handlers),
        sandbox_image=PAUSE,
        cni_programs=host.cni.directory,
        cni_configurations=root / "cni",
        snapshotter=OVERLAYFS if host.disk.overlay else NATIVE,
        restricts_oom_score=not host.can_lower_oom_score,
    )
    return write_configuration(configuration, containerd.version)


def answers(endpoint: str) -> bool:
    """Whether an engine is ready, its network too."""

    async def ask() -> bool:
        async with CriClient(endpoint) as cri:
            try:
                reply = await cri.call(cri.runtime.Status, pb.StatusRequest(), timeout_s=2)
            except CriError:
                return False
            # containerd 2 has a third one, which is false where it warns of something.
            return {"RuntimeReady", "NetworkReady"} <= {
                condition.type for condition in reply.status.conditions if condition.status
            }

    return asyncio.run(ask())


def _import_images(root: Path, host: Inventory, socket: Path, search_path: str) -> None:
    tools = host.tools
    paths = [tools[name].path if name in tools else None for name in ("busybox", "catatonit")]
    archive = root / "images.tar"
    archive.write_bytes(write_archive(asyncio.run(catalogue(*paths))))
    program = shutil.which("ctr", path=search_path)
    assert program is not None
    ctr = [program, "--address", str(socket), "--namespace", _NAMESPACE]
    snapshotter = OVERLAYFS if host.disk.overlay else NATIVE
    subprocess.run(
        [*ctr, "images", "import", "--snapshotter", snapshotter, archive],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    until(lambda: _has_pause(f"unix://{socket}"), "the images in the CRI")


def _has_pause(endpoint: str) -> bool:
    async def ask() -> bool:
        async with CriClient(endpoint) as cri:
            request = pb.ImageStatusRequest(image=pb.ImageSpec(image=PAUSE))
            return bool((await cri.call(cri.images.ImageStatus, request)).image.id)

    return asyncio.run(ask())


async def remove_sandboxes(endpoint: str) -> None:
    """Stop and remove all that an engine has."""
    async with CriClient(endpoint) as cri:
        listed = await cri.call(cri.runtime.ListPodSandbox, pb.ListPodSandboxRequest())
        for sandbox in listed.items:
            stop = pb.StopPodSandboxRequest(pod_sandbox_id=sandbox.id)
            await cri.call(cri.runtime.StopPodSandbox, stop)
            remove = pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox.id)
            await cri.call(cri.runtime.RemovePodSandbox, remove)


def _end(pid: int, socket: Path) -> None:
    """End it, and what its shims hold if it could not end them itself."""
    _kill(pid, signal.SIGTERM)
    try:
        until(lambda: not Path(f"/proc/{pid}").exists() or state(pid) == "Z", "its end", _END_S)
    except AssertionError:
        _kill(pid, signal.SIGKILL)
    for descendant in descendants(_shims(socket)):
        _kill(descendant, signal.SIGKILL)


def _kill(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _shims(socket: Path) -> list[int]:
    pids = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if str(socket) in words or f"{socket}.ttrpc" in words:
                pids.append(int(path.name))
    return pids
