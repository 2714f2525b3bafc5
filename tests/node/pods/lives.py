"""A node in memory on which whole pods live: real workers, a fake engine, a fake API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from moorage.api.errors import NotFoundError
from moorage.api.meta import ObjectMeta
from moorage.api.nodes import NodeRuntimeHandler
from moorage.api.pods import Pod
from moorage.api.runtime_group import RuntimeClass
from moorage.linux.cgroups import Cgroups, Layout
from moorage.node.cgroups.tree import CgroupTree
from moorage.node.config.security import SecurityDefaults
from moorage.node.images.pulling import ImagePuller
from moorage.node.images.records import PullRecords
from moorage.node.images.verification import Verification
from moorage.node.machine.node_status import NodeShutdown
from moorage.node.machine.pressure import NodePressure
from moorage.node.metrics import Metrics
from moorage.node.options import NodeOptions
from moorage.node.paths import NodePaths
from moorage.node.pods.allocations import AllocationRecords
from moorage.node.pods.context import NodeContext
from moorage.node.pods.handler_choice import HandlerRecords, RuntimeClasses
from moorage.node.pods.hooks import Hooks
from moorage.node.pods.pod_network import OpenNetwork
from moorage.node.pods.sandboxes import SandboxMaker
from moorage.node.pods.starting import ContainerStarter
from moorage.node.pods.stopping import ContainerStopper
from moorage.node.pods.user_namespaces import UserNamespaces
from moorage.node.pods.worker import PodWorker
from moorage.node.runtime.observer import Observer
from moorage.node.runtime.views import PodView
from moorage.node.status.writer import StatusWriter
from moorage.node.volumes.pod_volumes import VolumeKeeper
from moorage.wire.client.resources import PODS
from moorage.wire.metrics import RequestMetrics
from tests.clocks import FakeClock, settle
from tests.node.engine import FakeEngine
from tests.node.objects import UID
from tests.node.volumes.mounts import FakeMounter


class InlineExecutor(ThreadPoolExecutor):
    """Does at once what would be done in a thread, so that a test knows when all is done."""

    def submit(self, work: Any, /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args, **named))
        except BaseException as error:
            future.set_exception(error)
        return future


class FakeApi:
    """The one pod the API has, and how its status went on. An answer takes `order` of the loop."""

    def __init__(self) -> None:
        self.metrics = RequestMetrics()
        self.pod: Pod | None = None
        self.phases: list[str] = []
        self.order = 1
        self._version = 1
        self.classes: dict[str, RuntimeClass] = {}
        self.on_change: Callable[[Pod | None], None] = lambda _: None

    def put(self, pod: Pod) -> Pod:
        self._version += 1
        meta = msgspec.structs.replace(pod.metadata, resource_version=str(self._version))
        self.pod = msgspec.structs.replace(pod, metadata=meta)
        self.on_change(self.pod)
        return self.pod

    async def patch(self, resource: Any, name: str, patch: Any, namespace: str, **_: Any) -> Pod:
        await settle(self.order)
        assert (resource, namespace) == (PODS, "shop")
        if self.pod is None:
            raise NotFoundError.of("pods", name)
        wire = msgspec.to_builtins(self.pod)
        status = wire["status"]
        sent = msgspec.json.decode(msgspec.json.encode(patch["status"]))
        merged = {condition["type"]: condition for condition in status.get("conditions", ())}
        for new_condition in sent.pop("conditions", []):
            kept = merged.pop(new_condition["type"], {})
            if new_condition.get("$patch") == "delete":
                continue
            merged[new_condition["type"]] = {
                k: v for k, v in {**kept, **new_condition}.items() if v is not None
            }
        for key, value in sent.items():
            if isinstance(value, list):
                value = [item for item in value if "$patch" not in item]
            if isinstance(value, dict):
                value = {k: v for k, v in value.items() if k != "$patch"}
            status[key] = value
        wire["status"] = {key: value for key, value in status.items() if value is not None}
        wire["status"]["conditions"] = list(merged.values())
        obj = self.put(msgspec.convert(wire, Pod))
        if not self.phases or self.phases[-1] != obj.status.phase:
            self.phases.append(obj.status.phase)
        return obj

    async def delete(self, resource: Any, name: str, namespace: str, **how: Any) -> None:
        await asyncio.sleep(0)
        assert (resource, namespace, name) == (PODS, "shop", "web")
        assert how == {"uid": UID, "grace_period_seconds": 0}
        self.pod = None
        self.on_change(None)

    async def get(self, resource: Any, name: str, namespace: str | None = None) -> Any:
        del resource, namespace
        if name not in self.classes:
            raise NotFoundError.of("runtimeclasses", name, group="node.k8s.io")
        return self.classes[name]

    def add_class(self, name: str, handler: str, created: str = "2026-01-01T00:00:00Z") -> None:
        meta = ObjectMeta(name=name, creation_timestamp=created)
        self.classes[name] = RuntimeClass(metadata=meta, handler=handler)


class FakeEvents:
    """Events as `Reason: message`."""

    def __init__(self) -> None:
        self.recorded: list[str] = []

    def pod(self, pod: Pod, type_: str, reason: str, message: str, annotations: Any = None) -> None:
        del pod, type_, annotations
        self.recorded.append(f"{reason}: {message}")

    def container(
        self, pod: Pod, member: Any, type_: str, reason: str, message: str, **_: Any
    ) -> None:
        self.pod(pod, type_, reason, f"{member.name}: {message}")

    @property
    def reasons(self) -> list[str]:
        return [event.partition(":")[0] for event in self.recorded]


class FakeInformer:
    """Knows nothing, and is in no hurry to."""

    is_synced = False

    def get(self, name: str) -> None:
        del name

    def __iter__(self) -> Any:
        return iter(())

    async def wait_synced(self) -> None:
        return


class ClassInformer:
    """The classes that the API has, always up to date."""

    is_synced = True

    def __init__(self, api: FakeApi) -> None:
        self._api = api

    def get(self, name: str) -> RuntimeClass | None:
        return self._api.classes.get(name)


class FakeLogs:
    async def remove_pod(self, pod: Pod, view: Any) -> None:
        """There are no logs to remove."""


class Life:
    """A node with one pod. `until` lets time pass as fast as nothing happens."""

    def __init__(self, root: Path) -> None:
        self.clock = FakeClock()
        self.engine, self.api, self.events = FakeEngine(self.clock), FakeApi(), FakeEvents()
        self.root = root
        self.has_classes_enabled = True
        self.observer = Observer(self.engine, self.clock, period_s=1.0)  # type: ignore[arg-type]
        self.context = self._make_context()
        self.worker: PodWorker
        self.task: asyncio.Task[None] | None = None
        self.observer.add_listener(lambda _: self.worker.wake())
        self.api.on_change = self._on_change

    def begin(self, pod: Pod) -> None:
        """The pod is this node's: give it a worker."""
        stored = self.api.put(pod) if self.api.pod is None else self.api.pod
        record = self.context.allocations.read(UID)
        self.worker = PodWorker(stored, self.context, record=record)
        self.task = asyncio.ensure_future(self.worker.run())

    async def restart_agent(self) -> None:
        """End the worker without a trace in the engine, and begin another with what the API has."""
        assert self.task is not None
        assert self.api.pod is not None
        self.task.cancel()
        await asyncio.wait((self.task,))
        self.observer = Observer(self.engine, self.clock, period_s=1.0)  # type: ignore[arg-type]
        self.observer.add_listener(lambda _: self.worker.wake())
        await self.observer.relist()
        self.context = self._make_context()
        self.begin(self.api.pod)

    def forget_records(self) -> None:
        """No handler of a pod was ever recorded here."""
        for record in self.root.glob("pods/*/runtime-handler"):
            record.unlink()

    @property
    def view(self) -> PodView:
        return self.observer.view(UID)

    def ask_to_delete(self, grace_s: int = 30) -> None:
        assert self.api.pod is not None
        meta = msgspec.structs.replace(
            self.api.pod.metadata,
            deletion_timestamp="2026-01-01T00:00:00Z",
            deletion_grace_period_seconds=grace_s,
        )
        self.api.put(msgspec.structs.replace(self.api.pod, metadata=meta))

    async def look(self) -> None:
        """The engine has changed by itself."""
        await self.observer.relist()
        await settle(200)

    async def until(self, condition: Callable[[], object], most_s: float = 3600) -> None:
        """Return when something holds; fail with what was seen when time has run out."""
        end_s = self.clock.monotonic() + most_s
        while True:
            await settle(200)
            if condition():
                return
            next_s = self.clock.next_s
            if next_s is None or self.clock.monotonic() + next_s > end_s:
                status = self.api.pod.status if self.api.pod is not None else None
                raise AssertionError(
                    f"calls {self.engine.calls}\nevents {self.events.recorded}\nstatus {status}"
                )
            self.clock.advance(next_s)

    def waiting(self, name: str = "app") -> str:
        """Why a container waits, as the API has it."""
        assert self.api.pod is not None
        for container_status in self.api.pod.status.container_statuses:
            if container_status.name == name and container_status.state.waiting is not None:
                return container_status.state.waiting.reason
        return ""

    def _on_change(self, pod: Pod | None) -> None:
        if self.task is None:
            return
        if pod is None:
            self.worker.remove()
        else:
            self.worker.update(pod)

    def _make_context(self) -> NodeContext:
        engine: Any = self.engine
        api: Any = self.api
        events: Any = self.events
        informer: Any = FakeInformer()
        followed: Any = ClassInformer(api)
        logs: Any = FakeLogs()
        checks: Any = None
        tokens: Any = SimpleNamespace(forget=lambda _: None, renewal_s=lambda _: None)
        health: Any = SimpleNamespace(
            network_problem=None,
            engine_name="containerd",
            handlers=tuple(NodeRuntimeHandler(name=handler) for handler in sorted(engine.handlers)),
        )
        clock, metrics, mounter = self.clock, Metrics(), FakeMounter()
        options = NodeOptions(
            name="n1", root_dir=self.root, container_logs_dir=None, resolv_conf=None
        )
        paths = NodePaths(self.root, self.root / "logs")
        hooks = Hooks(engine, None, clock)  # type: ignore[arg-type]
        users = UserNamespaces(paths, max_pods=2, register=paths.root / "idmaps")
        records = PullRecords(paths.image_records, clock)
        records.load()
        images = ImagePuller(
            engine, events, clock, parallel_pulls=1, records=records, verification=Verification()
        )
        classes = RuntimeClasses(
            api, followed, HandlerRecords(paths), is_enabled=self.has_classes_enabled
        )
        return NodeContext(
            network=OpenNetwork(),
            options=options,
            paths=paths,
            clock=clock,
            client=api,
            engine=engine,
            observer=self.observer,
            health=health,
            classes=classes,
            cgroups=CgroupTree(Cgroups(Layout.ABSENT), "/moorage"),
            allocations=AllocationRecords(paths),
            volumes=VolumeKeeper(
                objects=api,
                tokens=tokens,
                mounter=mounter,
                paths=paths,
                clock=clock,
                refresh_s=30,
                node_labels=dict,
            ),
            images=images,
            sandboxes=SandboxMaker(
                engine=engine,
                observer=self.observer,
                classes=classes,
                handlers=lambda: health.handlers,
                user_namespaces=users,
                events=events,
                metrics=metrics,
                clock=clock,
                options=options,
                paths=paths,
                cgroup_parent=lambda _: "/moorage/x",
                cgroups=Cgroups(Layout.ABSENT),
            ),
            starter=ContainerStarter(
                engine=engine,
                observer=self.observer,
                images=images,
                objects=api,
                services=informer,
                hooks=hooks,
                events=events,
                metrics=metrics,
                mounter=mounter,
                user_namespaces=users,
                clock=clock,
                options=options,
                paths=paths,
                security=SecurityDefaults(seccomp_dir=self.root),
                memory_capacity_bytes=1 << 33,
            ),
            stopper=ContainerStopper(
                engine=engine, observer=self.observer, hooks=hooks, events=events, clock=clock
            ),
            checks=checks,
            events=events,
            metrics=metrics,
            logs=logs,
            writer=StatusWriter(api, clock),
            pressure=NodePressure(),
            shutdown=NodeShutdown(),
            host_ips=("10.0.0.1",),
            allocatable=lambda: {"cpu": "4", "memory": "8Gi"},
        )


@asynccontextmanager
async def living(root: Path) -> AsyncIterator[Life]:
    """A node for one test; whatever still runs at its end is cancelled."""
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    life = Life(root)
    yield life
    if life.task is not None:
        life.task.cancel()
        await asyncio.wait((life.task,))
        if not life.task.cancelled():
            life.task.result()
