"""Our engine beside containerd: `.venv/bin/python -m bench.engine [--pods N]`. Needs root.

Prints what a pod's start takes by bare CRI calls (sandbox, container, start; CNI included) on each
engine with the same runtimes and image, its steps, 50 starts at once, teardown, a command in a
container, memory for each idle pod and of the engine itself, starts beside many other pods, and
gVisor beside its own command line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.bridge import remove_bridge, write_conflist
from bench.containerd import containerd, until_served
from moorage.cluster.engine.paths import HUGETLB_MARKER
from moorage.cluster.engine.plan import prepare_host
from moorage.cluster.host.hugetlb import unmount_hugetlb_v1
from moorage.cluster.images import catalogue, write_archive
from moorage.linux.process_memory import resident_bytes
from moorage.wire.cri import CriClient, engine_pb, pb

IMAGE = "moorage.local/busybox:1"
COMMAND = ["sleep", "1000000"]
HANDLERS = ("runc", "crun")
AT_ONCE = 50
MANY = 200
_FEW = 10
_PAUSE_S = 0.15
_CALM_S = 2.0


class Pods:
    """Pods made on one engine by bare calls."""

    def __init__(self, cri: CriClient, handler: str) -> None:
        self._cri = cri
        self._handler = handler
        self.steps: list[tuple[float, float, float]] = []
        self.ends: list[float] = []

    async def start(self) -> tuple[str, str]:
        """Sandbox and container, running; the seconds of each step are kept."""
        cri, uid = self._cri, str(uuid.uuid4())
        context = pb.NamespaceOption(pid=pb.CONTAINER)
        sandbox_config = pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(name=uid, uid=uid, namespace="bench"),
            hostname="bench",
            log_directory=f"{tempfile.gettempdir()}/moorage-bench-logs",
            linux=pb.LinuxPodSandboxConfig(
                cgroup_parent="/moorage-bench",
                security_context=pb.LinuxSandboxSecurityContext(namespace_options=context),
            ),
        )
        config = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name="app"),
            image=pb.ImageSpec(image=IMAGE),
            command=COMMAND,
            log_path=f"{uid}.log",
            linux=pb.LinuxContainerConfig(
                security_context=pb.LinuxContainerSecurityContext(namespace_options=context)
            ),
        )
        moments = [time.perf_counter()]
        run = pb.RunPodSandboxRequest(config=sandbox_config, runtime_handler=self._handler)
        sandbox = (await cri.call(cri.runtime.RunPodSandbox, run)).pod_sandbox_id
        moments.append(time.perf_counter())
        create = pb.CreateContainerRequest(
            pod_sandbox_id=sandbox, config=config, sandbox_config=sandbox_config
        )
        container = (await cri.call(cri.runtime.CreateContainer, create)).container_id
        moments.append(time.perf_counter())
        await cri.call(cri.runtime.StartContainer, pb.StartContainerRequest(container_id=container))
        moments.append(time.perf_counter())
        first, second, third, last = moments
        self.steps.append((second - first, third - second, last - third))
        return sandbox, container

    async def end(self, sandbox: str) -> None:
        began = time.perf_counter()
        cri = self._cri
        await cri.call(cri.runtime.StopPodSandbox, pb.StopPodSandboxRequest(pod_sandbox_id=sandbox))
        await cri.call(
            cri.runtime.RemovePodSandbox, pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox)
        )
        self.ends.append(time.perf_counter() - began)

    async def one_by_one(self, count: int) -> float:
        """The median of so many starts, each alone, in milliseconds."""
        self.steps.clear()
        for _ in range(count):
            sandbox, _ = await self.start()
            await self.end(sandbox)
            await asyncio.sleep(_PAUSE_S)
        return _median_ms([sum(times) for times in self.steps])

    async def at_once(self, count: int) -> float:
        """How long so many take that are begun together, in seconds; they are ended again."""
        began = time.perf_counter()
        started = await asyncio.gather(*(self.start() for _ in range(count)))
        took = time.perf_counter() - began
        for sandbox, _ in started:
            await self.end(sandbox)
        return took

    async def command_ms(self, count: int) -> float:
        """The median of so many commands in one container."""
        sandbox, container = await self.start()
        request = pb.ExecSyncRequest(container_id=container, cmd=["true"], timeout=10)
        took = []
        for _ in range(count):
            began = time.perf_counter()
            await self._cri.call(self._cri.runtime.ExecSync, request)
            took.append(time.perf_counter() - began)
        await self.end(sandbox)
        return _median_ms(took)

    def describe(self) -> str:
        parts = [_median_ms([times[step] for times in self.steps]) for step in range(3)]
        return "sandbox {:.0f}, create {:.0f}, start {:.0f}".format(*parts)


@asynccontextmanager
async def own_engine(directory: Path, cni: Path, images: Path) -> AsyncIterator[tuple[str, int]]:
    """The endpoint and process id of an engine of ours, with the images."""
    endpoint = f"unix://{directory}/e.sock"
    options = ["--listen", endpoint, "--data-dir", directory / "d", "--run-dir", directory / "r"]
    options += ["--cni-conf", cni, "--handlers-dir", directory / "h", "--log-level", "warning"]
    argv = [sys.executable, "-m", "moorage.cli", "engine", *map(str, options)]
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "2"}
    process = subprocess.Popen(argv, env=environment)
    try:
        await until_served(endpoint)
        async with CriClient(endpoint) as cri:
            request = engine_pb.LoadImagesRequest(archive=str(images))
            await cri.call(cri.engine.LoadImages, request)
        yield endpoint, process.pid
    finally:
        process.terminate()
        process.wait()
        subprocess.run([*argv, "--clear"], env=environment, check=True)


async def compare(ours: CriClient, theirs: CriClient, pods: int) -> None:
    for handler in HANDLERS:
        mine, other = Pods(ours, handler), Pods(theirs, handler)
        for program in (mine, other):
            await program.one_by_one(3)
        start, peer_start = await mine.one_by_one(pods), await other.one_by_one(pods)
        print(
            f"{handler}: start {start:.0f} ms ({mine.describe()}); "
            f"containerd {peer_start:.0f} ms ({other.describe()}): {start / peer_start:.2f} x"
        )
        end, peer_end = _median_ms(mine.ends), _median_ms(other.ends)
        print(f"{handler}: teardown {end:.0f} ms; containerd {peer_end:.0f} ms: "
              f"{end / peer_end:.2f} x")  # fmt: skip
        command, peer_command = await mine.command_ms(pods), await other.command_ms(pods)
        print(
            f"{handler}: a command {command:.0f} ms; containerd {peer_command:.0f} ms: "
            f"{command / peer_command:.2f} x"
        )
        many, peer_many = await mine.at_once(AT_ONCE), await other.at_once(AT_ONCE)
        print(
            f"{handler}: {AT_ONCE} at once {many:.2f} s; containerd {peer_many:.2f} s: "
            f"{many / peer_many:.2f} x"
        )


async def report_memory(ours: CriClient, pid: int, pods: int) -> None:
    """Memory for each pod, of the engine, and what many pods do to a start."""
    crun = Pods(ours, "crun")
    await asyncio.sleep(_CALM_S)
    alone = await crun.one_by_one(pods)
    monitors = _monitors(pid)
    print(f"engine: {(resident_bytes(pid) or 0) / 2**20:.0f} MiB resident without pods")
    started = []
    for count in (100, MANY):
        while len(started) < count:
            started.append((await crun.start())[0])
        print(f"engine: {(resident_bytes(pid) or 0) / 2**20:.0f} MiB resident with {count} pods")
    mine = _monitors(pid) - monitors
    resident = [_smaps(process, "Rss") for process in mine]
    own = [_smaps(process, "Pss") for process in mine]
    print(
        f"crun: besides its container an idle pod has {len(mine) / MANY:.1f} processes of "
        f"{statistics.median(resident) / 1024:.1f} MiB, {statistics.median(own) / 1024:.1f} MiB "
        "without what they share"
    )
    await asyncio.sleep(_CALM_S)
    beside = await crun.one_by_one(pods)
    print(
        f"crun: a start beside {MANY} pods {beside:.0f} ms, alone {alone:.0f} ms: "
        f"{beside / alone:.2f} x"
    )
    for sandbox in started:
        await crun.end(sandbox)


async def report_shim_memory(theirs: CriClient, directory: Path, containerd_pid: int) -> None:
    """Memory that containerd's shims take for idle pods, without their pause processes."""
    crun = Pods(theirs, "crun")
    started = [(await crun.start())[0] for _ in range(_FEW)]
    await asyncio.sleep(_CALM_S)
    shims = [pid for pid in _pids_with_argument(str(directory)) if pid != containerd_pid]
    resident = statistics.median(_smaps(shim, "Rss") for shim in shims)
    own = statistics.median(_smaps(shim, "Pss") for shim in shims)
    print(
        f"containerd: an idle pod has {len(shims) / _FEW:.1f} shims of {resident / 1024:.1f} MiB, "
        f"{own / 1024:.1f} MiB without what they share"
    )
    for sandbox in started:
        await crun.end(sandbox)


async def gvisor(ours: CriClient, directory: Path, pods: int) -> None:
    """A gVisor pod's start beside the same steps of `runsc` by hand, and one `runsc run`."""
    if shutil.which("runsc") is None:
        print("gvisor: runsc is not on PATH")
        return
    mine = Pods(ours, "runsc")
    start = await mine.one_by_one(pods)
    bare = BareGvisor(directory)
    steps = await asyncio.to_thread(bare.pod_ms, pods)
    alone = await asyncio.to_thread(bare.run_ms, pods)
    print(
        f"gvisor: start {start:.0f} ms ({mine.describe()}); runsc create and start of a sandbox "
        f"and a container by hand {steps:.0f} ms: {start / steps:.2f} x; runsc run of one program "
        f"{alone:.0f} ms: {start / alone:.2f} x"
    )


class BareGvisor:
    """gVisor by its command line alone: no network, no log, no limits."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        flags = ("--platform=ptrace", "--network=none", "--ignore-cgroups")
        self._command = ("runsc", f"--root={directory}/state", *flags)
        self._made = 0

    def run_ms(self, count: int) -> float:
        """The median of `runsc run` of a program that ends at once."""
        bundle = self._bundle({}, "true")
        return _median_ms([self._took("run", "--bundle", bundle, self._id()) for _ in range(count)])

    def pod_ms(self, count: int) -> float:
        """The median of a pod's four commands; the pods are ended again."""
        sandbox_bundle = self._bundle({"io.kubernetes.cri.container-type": "sandbox"}, "sleep")
        took = []
        for _ in range(count):
            sandbox, container = self._id(), self._id()
            bundle = self._bundle(
                {
                    "io.kubernetes.cri.container-type": "container",
                    "io.kubernetes.cri.sandbox-id": sandbox,
                },
                "sleep",
            )
            took.append(
                self._took("create", "--bundle", sandbox_bundle, sandbox)
                + self._took("start", sandbox)
                + self._took("create", "--bundle", bundle, container)
                + self._took("start", container)
            )
            for directory in (container, sandbox):
                self._took("delete", "--force", directory)
        return _median_ms(took)

    def _id(self) -> str:
        self._made += 1
        return f"bare{self._made}"

    def _bundle(self, annotations: dict[str, str], program: str) -> str:
        bundle = self._directory / self._id()
        root = bundle / "rootfs"
        (root / "bin").mkdir(parents=True)
        shutil.copy("/bin/busybox", root / "bin" / program)
        kinds = ("pid", "mount", "ipc", "network")
        spec = {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": [f"/bin/{program}", *(["1000"] if program == "sleep" else [])],
                "cwd": "/",
            },
            "root": {"path": str(root), "readonly": True},
            "annotations": annotations,
            "linux": {"namespaces": [{"type": kind} for kind in kinds]},
        }
        (bundle / "config.json").write_text(json.dumps(spec))
        return str(bundle)

    def _took(self, *words: str) -> float:
        nothing = subprocess.DEVNULL
        began = time.perf_counter()
        subprocess.run(
            [*self._command, *words], check=True, stdin=nothing, stdout=nothing, stderr=nothing
        )
        return time.perf_counter() - began


def _monitors(engine: int) -> set[int]:
    """The conmon processes of an engine: its adopted children."""
    pids = set()
    for task in Path(f"/proc/{engine}/task").iterdir():
        for pid in map(int, (task / "children").read_text().split()):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "conmon":
                pids.add(pid)
    return pids


def _pids_with_argument(word: str) -> list[int]:
    """The processes with a word in their arguments."""
    monitors = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                arguments = (path / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                # It has ended meanwhile.
                continue
            if word in arguments:
                monitors.append(int(path.name))
    return monitors


def _smaps(pid: int, field: str) -> int:
    """KiB of a process. Source: proc(5), smaps_rollup."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise LookupError(f"no {field} of process {pid}")


def _median_ms(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000


async def measure(directory: Path, pods: int) -> None:
    images = directory / "images.tar"
    images.write_bytes(write_archive(await catalogue(Path("/bin/busybox"), None)))
    cni = directory / "cni"
    write_conflist(cni, directory / "leases")
    async with (
        own_engine(directory / "own", cni, images) as (own, pid),
        containerd(directory / "peer", cni, images, HANDLERS) as (peer, peer_pid),
        CriClient(own) as ours,
        CriClient(peer) as theirs,
    ):
        await compare(ours, theirs, pods)
        await report_memory(ours, pid, pods)
        await report_shim_memory(theirs, directory / "peer", peer_pid)
        await gvisor(ours, directory / "runsc", pods)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pods", type=int, default=20, help="how many one after the other")
    options = parser.parse_args()
    # Short, since sockets are below it, and not under a directory that an overlay may hold.
    directory = Path(tempfile.mkdtemp(prefix="mb", dir="/var/lib"))
    try:
        asyncio.run(prepare_host(directory))
        asyncio.run(measure(directory, options.pods))
    finally:
        unmount_hugetlb_v1(HUGETLB_MARKER)
        remove_bridge()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
