"""A CRI-O of the tests' own, where MOORAGE_CRIO names a directory with `crio` and `pinns`.

No package of Debian 12 has it, and it is no Go module that can be built by its name: see
docs/development.md. All it keeps is in one directory, but its pods' bridge.
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
from moorage.cluster.host import gather
from moorage.cluster.images import PAUSE, catalogue, write_archive
from moorage.cluster.network import PodNetwork, forget
from moorage.cluster.network.subnet import write_conflist
from moorage.linux.process import state
from tests.containerd import answers, remove_sandboxes
from tests.running import until
from tests.subnets import engine_mark, free_subnet

_END_S = 20.0

_CONFIGURATION = """# A CRI-O of tests.
[crio]
root = "{root}/storage"
runroot = "{root}/run"
storage_driver = "overlay"
log_dir = "{root}/logs"
version_file = "{root}/version"
version_file_persist = "{root}/version-kept"
clean_shutdown_file = "{root}/clean"
[crio.api]
listen = "{root}/c.sock"
stream_address = "127.0.0.1"
stream_port = "0"
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
default_runtime = "runc"
namespaces_dir = "{root}/namespaces"
container_exits_dir = "{root}/exits"
container_attach_socket_dir = "{root}/attach"
pinns_path = "{programs}/pinns"
[crio.runtime.runtimes.runc]
runtime_path = "{runc}"
runtime_root = "{root}/runc"
[crio.image]
pause_image = "{pause}"
[crio.network]
network_dir = "{root}/cni"
plugin_dirs = ["{plugins}"]
[crio.nri]
enable_nri = false
"""


@dataclass(frozen=True)
class StartedCrio:
    """A running CRI-O: its files and its log are below `root`."""

    root: Path
    programs: Path

    @property
    def endpoint(self) -> str:
        return f"unix://{self.root}/c.sock"

    @property
    def main(self) -> Path:
        """Its configuration; drop-ins are in `crio.conf.d` beside it."""
        return self.root / "crio.conf"

    @property
    def restart_command(self) -> str:
        """What restarts it, as a service manager would."""
        return f"{self.root}/restart"

    def pid(self) -> int:
        return int((self.root / "pid").read_text())

    def write_scripts(self) -> None:
        start = (
            f"#!/bin/sh\nsetsid {self.programs}/crio --config {self.main} "
            f"--config-dir {self.root}/crio.conf.d >>{self.root}/log 2>&1 </dev/null &\n"
            f"echo $! >{self.root}/pid\n"
        )
        restart = (
            f"#!/bin/sh\npid=$(cat {self.root}/pid)\nkill $pid 2>/dev/null\n"
            f"while kill -0 $pid 2>/dev/null; do sleep 0.05; done\nexec {self.root}/start\n"
        )
        for name, text in {"start": start, "restart": restart}.items():
            (self.root / name).write_text(text)
            (self.root / name).chmod(0o755)


def crio_programs() -> Path:
    """The directory of its programs; the test is skipped without it."""
    chosen = os.environ.get("MOORAGE_CRIO", "")
    if not chosen or not (Path(chosen) / "crio").exists():
        pytest.skip("no CRI-O: MOORAGE_CRIO names a directory with crio and pinns")
    for needed in ("skopeo", "conmon", "runc"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed: `make packages` brings it")
    return Path(chosen)


@contextmanager
def started_crio() -> Iterator[StartedCrio]:
    """A CRI-O with the catalogue's images and a network of its own."""
    programs = crio_programs()
    # Short: the kernel takes no socket path over 107 bytes.
    crio = StartedCrio(Path(tempfile.mkdtemp(prefix="moor-crio-")), programs)
    root = crio.root
    network = PodNetwork(
        cluster_id=engine_mark(), subnet=free_subnet(), leases=root / "leases", mtu=1500
    )
    try:
        host = asyncio.run(gather(root))
        assert host.cni.directory is not None
        text = _CONFIGURATION.format(
            root=root, programs=programs, runc=shutil.which("runc"), pause=PAUSE,
            plugins=host.cni.directory,
        )  # fmt: skip
        crio.main.write_text(text)
        for directory in ("cni", "crio.conf.d"):
            (root / directory).mkdir()
        (root / "cni" / "10-test.conflist").write_text(write_conflist(network, None))
        tools = host.tools
        paths = [tools[name].path if name in tools else None for name in ("busybox", "catatonit")]
        for image in asyncio.run(catalogue(*paths)):
            (root / "image.tar").write_bytes(write_archive([image]))
            target = f"containers-storage:[overlay@{root}/storage+{root}/run]{image.name}"
            subprocess.run(
                ["skopeo", "copy", "--quiet", f"oci-archive:{root}/image.tar", target],
                check=True, capture_output=True, timeout=60,
            )  # fmt: skip
        crio.write_scripts()
        subprocess.run([root / "start"], check=True)
        try:
            until(lambda: answers(crio.endpoint), f"CRI-O, see {root}/log")
            yield crio
            asyncio.run(remove_sandboxes(crio.endpoint))
        finally:
            _end(crio.pid())
    finally:
        remove_directory(root)
        subprocess.run(["ip", "link", "delete", network.bridge], capture_output=True, check=False)
        forget(network)


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)
    try:
        until(lambda: not Path(f"/proc/{pid}").exists() or state(pid) == "Z", "its end", _END_S)
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
