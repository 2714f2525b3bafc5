"""Engines to break: each with directories, a bridge, a subnet and cgroups of its own.

RunningEngine   the process: started, killed, started again; leaves nothing at the end
Caller          its CRI: pods and containers in a line each
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moorage.linux.cgroup_control import kill_processes, remove_cgroup
from moorage.linux.cgroups import current_cgroups
from moorage.linux.mounts import current_mounts, mount, mounts_below, unmount
from moorage.linux.process import parent, state
from moorage.linux.trees import remove_tree
from moorage.wire.cri import CriClient, CriError, pb
from tests.engine.handlers.programs import program
from tests.forks import Fork

BUSYBOX = "moorage.local/busybox:1"
DEADLINE_S = 30.0
_SOURCES = Path(__file__).parents[3]
_NEEDED = ("runc", "conmon", "busybox", "ip", "skopeo")
_CNI = Path("/usr/lib/cni/bridge")
SPARES = 2


def skip_where_no_engine_runs() -> None:
    if os.geteuid() != 0:
        pytest.skip("pods need root")
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    if not _CNI.exists():
        pytest.skip(f"{_CNI} is not there: apt-get install containernetworking-plugins")


class RunningEngine:
    """An engine's process and everything that is only its own."""

    def __init__(self, archive: Path, spares: int = SPARES) -> None:
        # Short: sockets are below it.
        self.root = Path(tempfile.mkdtemp(prefix="m", dir="/tmp"))
        self.root.chmod(0o755)
        self.mark = f"mt{secrets.token_hex(4)}"
        self.cgroup = f"/moorage-{self.mark}"
        self._archive = archive
        # One that another test mounts meanwhile is not this engine's.
        self._hierarchies = current_cgroups().hierarchies
        self._spares = spares
        self._process: subprocess.Popen[bytes] | None = None
        self._write_network()
        self.handlers.mkdir()

    @property
    def data(self) -> Path:
        return self.root / "d"

    @property
    def run(self) -> Path:
        return self.root / "r"

    @property
    def endpoint(self) -> str:
        return f"unix://{self.run}/engine.sock"

    @property
    def handlers(self) -> Path:
        return self.root / "handlers.d"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def leases(self) -> Path:
        """What the address plugin has given away, a file each."""
        return self.root / "leases" / self.mark

    @property
    def pid(self) -> int:
        assert self._process is not None, "the engine does not run"
        return self._process.pid

    @property
    def rss_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def log_text(self) -> str:
        """What the engine wrote to its log, whichever process it was."""
        return (self.root / "engine.log").read_text()

    def limit_disk(self, size_bytes: int) -> None:
        """Give the engine's data a file system of its own. Before the first start."""
        self.data.mkdir()
        mount("data", self.data, "tmpfs", f"size={size_bytes}")

    def define(self, name: str, binary: str | Path, options: str = "", more: str = "") -> Path:
        """Put a handler's file in place in one step."""
        scratch = self.handlers / f".{name}.new"
        scratch.write_text(f'adapter = "oci"\nbinary = "{binary}"\n{more}[options]\n{options}\n')
        target = self.handlers / f"{name}.toml"
        scratch.replace(target)
        return target

    def program(self, name: str, script: str) -> Path:
        """A shell script to stand for a program."""
        return program(self.root / "bin", name, script)

    def start(self) -> None:
        """Start it and wait until it answers."""
        assert self._process is None
        self._process = self._launch()
        assert self._process.stdout is not None
        output = self._process.stdout.readline()
        assert output == b"ready\n", f"the engine did not start: {self.log_text[-3000:]}"

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        self.kill()
        self.start()

    def second_start(self) -> int:
        """Start another on the same directories; its exit status."""
        with self._launch() as process:
            return process.wait(DEADLINE_S)

    def drain(self) -> None:
        """Have what is kept ready for pods to come given back. For a stopped engine."""
        assert self._process is None
        with self._launch("drain") as process:
            assert process.wait(DEADLINE_S) == 0, self.log_text[-3000:]

    def processes(self) -> list[str]:
        """The command lines of what runs because of this engine, but the engine."""
        return [line for pid, line in self._related() if self._process is None or pid != self.pid]

    def leftovers(self) -> dict[str, list[str]]:
        """What of this engine's pods is still on the machine, by kind."""
        directories = [self.run / name for name in ("n", "s", "b", "x", "exits")]
        directories += [self.data / "containers", self.data / "sandboxes"]
        directories += [path for path in (self.run / "r").glob("*") if path.is_dir()]
        addresses = self.leases.glob("[0-9]*")
        result = {
            "mounts": [str(mount.point) for mount in mounts_below(self.run, current_mounts())],
            "directories": [str(path) for directory in directories for path in directory.glob("*")],
            "addresses": [str(address) for address in addresses],
            "links": self._ports(),
            "cgroups": [str(cgroup) for cgroup in self._cgroups()],
            "processes": self.processes(),
        }
        return {kind: names for kind, names in result.items() if names}

    def clean(self) -> None:
        """Remove whatever is left, however broken the engine is."""
        if self._process is not None:
            self.kill()
        for pid, _ in self._related():
            with _unless_gone():
                os.kill(pid, signal.SIGKILL)
        self._remove_cgroups()
        until(lambda: not self._related(), "the end of every process", 10)
        for mount_point in mounts_below(self.root, current_mounts()):
            unmount(mount_point.point)
        subprocess.run(["ip", "link", "del", self.mark], capture_output=True, check=False)
        remove_tree(self.root)

    def _launch(self, *more: str) -> subprocess.Popen[bytes]:
        # In development mode an engine takes 1.7 times as much processor time.
        is_checked = bool(os.environ.get("MOORAGE_FUZZ"))
        command = ["tests.engine.whole.serve", str(self.root), str(self._archive)]
        command += [str(self._spares), *more]
        with (self.root / "engine.log").open("ab") as log:
            options: dict[str, Any] = {
                "cwd": _SOURCES, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                "stderr": log,
            }  # fmt: skip
            if not is_checked:
                return Fork(command, **options)
            return subprocess.Popen([sys.executable, "-X", "dev", "-m", *command], **options)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        assert process is not None, "the engine does not run"
        assert process.stdout is not None
        with process:
            process.send_signal(number)
            process.wait(DEADLINE_S)

    def _related(self) -> list[tuple[int, str]]:
        """Processes whose command line, or cgroup, says this engine."""
        related = []
        for directory in Path("/proc").iterdir():
            if not directory.name.isdecimal() or int(directory.name) == os.getpid():
                continue
            try:
                line = (
                    (directory / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")
                )
                place = (directory / "cgroup").read_text()
                if state(int(directory.name)) == "Z" and parent(int(directory.name)) == 1:
                    # The machine's init takes its time.
                    continue
            except (FileNotFoundError, ProcessLookupError):
                continue
            if f"{self.root}/" in line or self.cgroup in place:
                related.append((int(directory.name), line or f"({directory.name})"))
        return related

    def _ports(self) -> list[str]:
        """The network devices on this engine's bridge."""
        ports = Path("/sys/class/net", self.mark, "brif")
        return sorted(path.name for path in ports.iterdir()) if ports.is_dir() else []

    def _cgroups(self) -> list[Path]:
        return [path for root in self._hierarchies for path in (root / self.cgroup[1:]).glob("*/")]

    def _remove_cgroups(self) -> None:
        cgroups = current_cgroups()
        for process in kill_processes(cgroups, self.cgroup):
            process.close()
        until(lambda: not kill_processes(cgroups, self.cgroup), "the end of every process", 10)
        remove_cgroup(cgroups, self.cgroup)

    def _write_network(self) -> None:
        octet = secrets.randbelow(200) + 20
        plugin = {
            "type": "bridge",
            "bridge": self.mark,
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "dataDir": str(self.root / "leases"),
                "ranges": [[{"subnet": f"10.{secrets.randbelow(50) + 150}.{octet}.0/24"}]],
            },
        }
        network = {"cniVersion": "0.4.0", "name": self.mark, "plugins": [plugin]}
        (self.root / "cni").mkdir()
        (self.root / "cni/10-test.conflist").write_text(json.dumps(network))


@contextmanager
def an_engine(archive: Path, spares: int = SPARES) -> Iterator[RunningEngine]:
    """An engine that answers; what is left of it afterwards is removed."""
    skip_where_no_engine_runs()
    engine = RunningEngine(archive, spares)
    try:
        engine.start()
        yield engine
    finally:
        engine.clean()


@contextmanager
def _unless_gone() -> Iterator[None]:
    try:
        yield
    except ProcessLookupError:
        return


def until(condition: Callable[[], object], description: str, within_s: float = DEADLINE_S) -> None:
    """Poll until `condition` is true: for conditions that send no notification."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"{description} not within {within_s:g} s"
        time.sleep(0.01)


async def eventually(
    condition: Callable[[], Awaitable[object]], description: str, within_s: float = DEADLINE_S
) -> None:
    """As `until`, for what has to be asked of the engine."""
    deadline = time.monotonic() + within_s
    while True:
        if await condition():
            return
        assert time.monotonic() < deadline, f"{description} not within {within_s:g} s"
        await asyncio.sleep(0.02)


@dataclass
class Caller:
    """Calls to an engine, with what most tests want filled in."""

    engine: RunningEngine
    cri: CriClient

    async def restart(self) -> None:
        """Kill the engine, start another, and wait until this connection has found it."""
        self.engine.kill()
        await self.start_engine()

    async def start_engine(self) -> None:
        """Start the engine again, and wait until this connection has found it."""
        self.engine.start()
        await eventually(self._is_connected, "a connection to the new engine", 5)

    async def _is_connected(self) -> bool:
        try:
            await self.cri.call(self.cri.runtime.Version, pb.VersionRequest())
        except CriError:
            return False
        return True

    async def run_pod(self, handler: str = "runc", **metadata: Any) -> str:
        """A sandbox; its id."""
        return await self.run_sandbox(self.pod_config(**metadata), handler)

    async def run_sandbox(self, config: pb.PodSandboxConfig, handler: str = "runc") -> str:
        request = pb.RunPodSandboxRequest(config=config, runtime_handler=handler)
        return (await self.cri.call(self.cri.runtime.RunPodSandbox, request)).pod_sandbox_id

    def pod_config(
        self, name: str = "", uid: str = "", attempt: int = 0, pid: Any = pb.CONTAINER
    ) -> pb.PodSandboxConfig:
        name = name or f"pod-{secrets.token_hex(4)}"
        options = pb.NamespaceOption(pid=pid)
        return pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(
                name=name, namespace="ns", uid=uid or secrets.token_hex(8), attempt=attempt
            ),
            hostname=name,
            log_directory=str(self.engine.logs / name),
            labels={"app": name},
            linux=pb.LinuxPodSandboxConfig(
                cgroup_parent=f"{self.engine.cgroup}/{name}",
                security_context=pb.LinuxSandboxSecurityContext(namespace_options=options),
            ),
        )

    async def create(
        self,
        sandbox: str,
        *command: str,
        name: str = "main",
        attempt: int = 0,
        image: str = BUSYBOX,
        resources: pb.LinuxContainerResources | None = None,
        **fields: Any,
    ) -> str:
        """A container that is not started; its id. Its log is `name.log`."""
        options = pb.NamespaceOption(pid=fields.pop("pid", pb.CONTAINER))
        security = pb.LinuxContainerSecurityContext(
            namespace_options=fields.pop("namespace_options", options),
            readonly_rootfs=fields.pop("is_read_only", False),
        )
        config = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=name, attempt=attempt),
            image=pb.ImageSpec(image=image),
            command=command,
            log_path=f"{name}.log",
            linux=pb.LinuxContainerConfig(resources=resources, security_context=security),
            **fields,
        )
        request = pb.CreateContainerRequest(pod_sandbox_id=sandbox, config=config)
        return (await self.cri.call(self.cri.runtime.CreateContainer, request)).container_id

    async def start(self, container: str) -> None:
        request = pb.StartContainerRequest(container_id=container)
        await self.cri.call(self.cri.runtime.StartContainer, request)

    async def run(self, sandbox: str, *command: str, **fields: Any) -> str:
        """A started container."""
        container = await self.create(sandbox, *command, **fields)
        await self.start(container)
        return container

    async def stop(self, container: str, grace_s: int = 0) -> None:
        request = pb.StopContainerRequest(container_id=container, timeout=grace_s)
        await self.cri.call(self.cri.runtime.StopContainer, request)

    async def remove(self, container: str) -> None:
        request = pb.RemoveContainerRequest(container_id=container)
        await self.cri.call(self.cri.runtime.RemoveContainer, request)

    async def stop_pod(self, sandbox: str) -> None:
        request = pb.StopPodSandboxRequest(pod_sandbox_id=sandbox)
        await self.cri.call(self.cri.runtime.StopPodSandbox, request)

    async def remove_pod(self, sandbox: str) -> None:
        request = pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox)
        await self.cri.call(self.cri.runtime.RemovePodSandbox, request)

    async def status(self, container: str) -> pb.ContainerStatus:
        request = pb.ContainerStatusRequest(container_id=container)
        return (await self.cri.call(self.cri.runtime.ContainerStatus, request)).status

    async def pod_status(self, sandbox: str) -> pb.PodSandboxStatus:
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox)
        return (await self.cri.call(self.cri.runtime.PodSandboxStatus, request)).status

    async def pods(self) -> dict[str, pb.PodSandbox]:
        reply = await self.cri.call(self.cri.runtime.ListPodSandbox, pb.ListPodSandboxRequest())
        return {sandbox.id: sandbox for sandbox in reply.items}

    async def containers(self) -> dict[str, pb.Container]:
        reply = await self.cri.call(self.cri.runtime.ListContainers, pb.ListContainersRequest())
        return {container.id: container for container in reply.containers}

    async def exec(self, container: str, *command: str, limit_s: int = 10) -> pb.ExecSyncResponse:
        request = pb.ExecSyncRequest(container_id=container, cmd=command, timeout=limit_s)
        return await self.cri.call(self.cri.runtime.ExecSync, request)

    async def ended(self, container: str, within_s: float = DEADLINE_S) -> pb.ContainerStatus:
        """Its status once it has ended."""

        async def has_ended() -> bool:
            return (await self.status(container)).state == pb.CONTAINER_EXITED

        await eventually(has_ended, f"the end of container {container[:12]}", within_s)
        return await self.status(container)

    async def info(self, container: str) -> Mapping[str, Any]:
        """Return the verbose part of a container's status."""
        request = pb.ContainerStatusRequest(container_id=container, verbose=True)
        reply = await self.cri.call(self.cri.runtime.ContainerStatus, request)
        return dict(json.loads(reply.info["info"]))

    async def log_of(self, container: str) -> list[str]:
        """What it wrote, a line each, without times and streams."""
        return log_lines(Path((await self.status(container)).log_path))

    async def wait_for_line(self, container: str, line: str) -> None:
        """Wait until its log has that line."""

        async def is_there() -> bool:
            return line in await self.log_of(container)

        await eventually(is_there, f"{line!r} in the log of {container[:12]}")

    async def remove_all(self) -> None:
        await asyncio.gather(*map(self.remove_pod, await self.pods()))


def log_lines(file: Path) -> list[str]:
    """The lines of a log, its pieces put together. Source: the CRI's log format."""
    lines, pieces = [], ""
    for line in file.read_text().splitlines():
        _, _, tag, text = line.split(" ", 3)
        pieces += text
        if tag == "F":
            lines.append(pieces)
            pieces = ""
    return [*lines, pieces] if pieces else lines


def shell(script: str) -> Sequence[str]:
    """The words that run a script in the tests' image."""
    return ("/bin/sh", "-c", script)
