"""The parts of an engine on directories of a test: all real but the runtime and the plugins."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.engine.background import Background
from moorage.engine.cgroups import ContainerCgroups
from moorage.engine.containers.bundle import create_container
from moorage.engine.containers.lifecycle import start_container
from moorage.engine.context import EngineContext
from moorage.engine.events import Events
from moorage.engine.handlers.availability import AVAILABLE, Verdict
from moorage.engine.handlers.definition import HandlerDefinition, parse_definition
from moorage.engine.handlers.features import HandlerFeatures
from moorage.engine.handlers.templates import Catalogue, OfferedHandler
from moorage.engine.idle_gate import IdleGate
from moorage.engine.images.store import ImagePaths, ImageStore
from moorage.engine.infra import InfraProcess
from moorage.engine.inventory import Container, Inventory, Sandbox
from moorage.engine.networks import NetworkPool, Plugins, read_conflist
from moorage.engine.oci import CdiDirectories, SpecWriter
from moorage.engine.options import EngineOptions
from moorage.engine.paths import EnginePaths
from moorage.engine.recovery import recover
from moorage.engine.sandboxes.run import run_pod_sandbox
from moorage.linux.cgroups import Cgroups, Layout
from moorage.linux.mounts import current_mounts, mounts_below
from moorage.wire.cri import pb
from tests.clocks import FakeClock, settle
from tests.engine.fakes import FakeAdapter, FakeDrivers
from tests.engine.handlers.programs import program
from tests.engine.images.builds import Entry, directory, layer, oci_archive
from tests.engine.images.conftest import place
from tests.engine.oci.requests import HOST

__all__ = ["bench", "make_bench", "place"]

APP, DATA, ABSENT = "localhost/app:1", "localhost/data:1", "localhost/absent:1"
PARENT = "/kubepods/podu-1"
ADDRESS = "10.9.0.2"
_PASSWORDS = b"root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/:/bin/sh\n"
_ANSWER = json.dumps({"cniVersion": "1.0.0", "ips": [{"address": f"{ADDRESS}/24"}]})
_PLUGIN = f"""
echo "$CNI_COMMAND $CNI_CONTAINERID" >>"$(dirname "$0")/calls"
cat >/dev/null
[ ! -e "$(dirname "$0")/fails" ] || {{ echo '{{"code": 7, "msg": "no room"}}'; exit 1; }}
[ "$CNI_COMMAND" = DEL ] || echo '{_ANSWER}'
"""
_NETWORK = {"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "plain"}]}


@dataclass
class Bench:
    """An engine's parts, what its runtime was asked, and the events that it published."""

    root: Path
    context: EngineContext
    adapter: FakeAdapter
    drivers: FakeDrivers
    clock: FakeClock
    catalogue: list[Catalogue]
    events: list[tuple[str, str]] = field(default_factory=list)

    @property
    def paths(self) -> EnginePaths:
        return self.context.paths

    @property
    def inventory(self) -> Inventory:
        return self.context.inventory

    async def pod(self, **changed: Any) -> Sandbox:
        """A sandbox that runs; `changed` are as for `pod_config`."""
        return await run_pod_sandbox(self.context, pod_config(**changed), "")

    async def created(self, sandbox: Sandbox, **changed: Any) -> Container:
        return await create_container(self.context, sandbox, container_config(**changed))

    async def running(self, sandbox: Sandbox, **changed: Any) -> Container:
        container = await self.created(sandbox, **changed)
        await start_container(self.context, container)
        await settle()
        return container

    async def new_events(self) -> list[tuple[str, str]]:
        """Return the events since the last call: kind and id."""
        await settle()
        events, self.events[:] = list(self.events), []
        return events

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what happens in a thread or another task."""
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    def on_disk(self, kind: str) -> dict[str, Any]:
        """The records on disk by id; `kind` is sandboxes or containers."""
        files = (self.paths.data / kind).iterdir()
        return {file.stem: msgspec.json.decode(file.read_bytes()) for file in files}

    def network_calls(self) -> list[str]:
        file = self.root / "cni/calls"
        return file.read_text().splitlines() if file.exists() else []

    def break_network(self, *, is_broken: bool = True) -> None:
        mark = self.root / "cni/fails"
        mark.touch() if is_broken else mark.unlink()

    def mounts(self) -> set[str]:
        """What is mounted in the directory of short life, without what the image store keeps."""
        below = mounts_below(self.paths.run, current_mounts())
        return {str(mount.point.relative_to(self.paths.run)) for mount in below}

    def cgroup(self, path: str) -> Path:
        """A cgroup's directory in the hierarchy of memory."""
        return self.root / "cgroup/memory" / path.lstrip("/")

    def end(self, container: Container, code: int, *, is_out_of_memory: bool = False) -> None:
        self.adapter.end(container.id, code, is_out_of_memory=is_out_of_memory)

    def offer(self, text: str, *, verdict: Verdict = AVAILABLE, has_program: bool = True) -> None:
        """Have a handler of this definition as the default and only one."""
        definition = handler(text)
        offered = OfferedHandler(
            definition=definition,
            program=self.root / "bin/runc" if has_program else None,
            features=HandlerFeatures(recursive_read_only_mounts=True),
            verdict=verdict,
        )
        self.catalogue[0] = Catalogue({definition.name: offered})


def handler(text: str = "") -> HandlerDefinition:
    return parse_definition(
        Path("/h/runc.toml"), (text or 'adapter = "oci"\nbinary = "runc"\n').encode()
    )


def pod_config(
    *, name: str = "web", parent: str = PARENT, is_on_host: bool = True, **changed: Any
) -> pb.PodSandboxConfig:
    """A pod on the machine's network; `changed` are fields of its namespace options."""
    mode = pb.NODE if is_on_host else pb.POD
    options = {"network": mode, "ipc": mode, "pid": pb.CONTAINER, **changed}
    return pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name=name, uid=f"u-{name}", namespace="shop"),
        hostname=name,
        log_directory="/logs",
        labels={"app": name},
        linux=pb.LinuxPodSandboxConfig(
            cgroup_parent=parent,
            security_context=pb.LinuxSandboxSecurityContext(
                namespace_options=pb.NamespaceOption(**options)
            ),
        ),
    )


def container_config(*, name: str = "main", image: str = APP, **fields: Any) -> pb.ContainerConfig:
    options = fields.pop("options", pb.NamespaceOption(pid=pb.CONTAINER))
    return pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name=name),
        image=pb.ImageSpec(image=image),
        linux=pb.LinuxContainerConfig(
            security_context=pb.LinuxContainerSecurityContext(namespace_options=options),
            resources=pb.LinuxContainerResources(memory_limit_in_bytes=64 << 20),
        ),
        labels={"part": name},
        **fields,
    )


@asynccontextmanager
async def make_bench(root: Path, adapter: FakeAdapter | None = None) -> AsyncIterator[Bench]:
    """An engine that has taken over what is below `root`; the images are loaded once."""
    adapter, clock = adapter or FakeAdapter(), FakeClock()
    paths = EnginePaths(root / "data", root / "run")
    paths.prepare()
    async with AsyncExitStack() as stack:
        images = await stack.enter_async_context(
            ImageStore(ImagePaths(paths.images, paths.run / "i"))
        )
        drivers = await stack.enter_async_context(FakeDrivers(paths, adapter))
        background = await stack.enter_async_context(Background())
        catalogue = [Catalogue()]
        context = _context(root, paths, images, drivers, background, clock, catalogue)
        bench = Bench(root, context, adapter, drivers, clock, catalogue)
        bench.offer('adapter = "oci"\nbinary = "runc"\n')
        background.start(_collect(context.events, bench.events))
        await recover(context)
        await settle()
        yield bench


async def _collect(events: Events, into: list[tuple[str, str]]) -> None:
    async for event in events.listen():
        kind = pb.ContainerEventType.Name(event.container_event_type)
        into.append((kind.removeprefix("CONTAINER_").removesuffix("_EVENT"), event.container_id))


def _context(
    root: Path,
    paths: EnginePaths,
    images: ImageStore,
    drivers: FakeDrivers,
    background: Background,
    clock: FakeClock,
    catalogue: list[Catalogue],
) -> EngineContext:
    options = EngineOptions(
        paths=paths,
        socket=root / "engine.sock",
        search_path=f"{root / 'bin'}",
        cni_programs=(root / "cni",),
        cni_configurations=root / "net.d",
    )
    # Ordinary directories: a real cpuset would be copied from its parent's files.
    mounts = {name: _directory(root / "cgroup" / name) for name in ("cpu", "memory", "pids")}
    cgroups = Cgroups(Layout.V1, mounts, hierarchies=tuple(mounts.values()))
    idle_gate = IdleGate(clock)
    return EngineContext(
        options=options,
        clock=clock,
        host=HOST,
        specs=SpecWriter(HOST),
        cdi=CdiDirectories((root / "cdi",)),
        inventory=Inventory(paths),
        images=images,
        networks=NetworkPool(
            paths.namespaces,
            Plugins(options.cni_programs),
            lambda: read_conflist(options.cni_configurations),
            clock,
            size=0,
            wait_idle=lambda: idle_gate.wait(0),
        ),
        idle_gate=idle_gate,
        drivers=drivers,
        infra=InfraProcess(paths.data / "holder", options.search_path),
        cgroups=ContainerCgroups(cgroups),
        events=Events(),
        handlers=lambda: catalogue[0],
        start=background.start,
        wait_answered=_answered,
    )


async def _answered(_handler: str) -> None:
    """The fake catalogue has asked every program."""


def _directory(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_programs_and_network(root: Path) -> None:
    """Put a network and the programs there that an engine looks for."""
    program(root / "bin", "runc", "exit 1")
    program(root / "cni", "plain", _PLUGIN)
    _directory(root / "net.d")
    (root / "net.d/10-n.conflist").write_text(json.dumps(_NETWORK))


async def load_images(images: ImageStore, root: Path) -> None:
    """APP, whose user is app and whose signal is SIGUSR1; DATA, a volume."""
    app = layer(directory("etc"), Entry("etc/passwd", _PASSWORDS), Entry("app", b"run", mode=0o755))
    process = {
        "User": "app",
        "Env": ["A=image"],
        "Entrypoint": ["/app"],
        "Cmd": ["serve"],
        "WorkingDir": "/srv",
        "StopSignal": "SIGUSR1",
    }
    await images.load(oci_archive(root / "app.tar", [APP], [app], process))
    data = layer(directory("in"), Entry("in/file", b"data"), Entry("other", b"o"))
    await images.load(oci_archive(root / "data.tar", [DATA], [data]))


@pytest.fixture
async def bench(place: Path) -> AsyncIterator[Bench]:
    """An engine with the images APP and DATA."""
    write_programs_and_network(place)
    async with make_bench(place) as made:
        await load_images(made.context.images, place)
        yield made
