"""A fake of CRI-O behind a real socket: what its CRI answers, without containers.

Handlers in another order in each status, sandboxes without their handler, events refused; stop and
remove of what is unknown succeed. What differs between engines is in the fields of `Behaviour`.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from moorage.wire.cri import pb
from moorage.wire.cri.generated.runtime_pb2_grpc import (
    RuntimeServiceServicer,
    add_RuntimeServiceServicer_to_server,
)


@dataclass
class Behaviour:
    """How the fake answers; `stuck` are sandboxes that cannot be stopped."""

    name: str = "cri-o"
    handlers: list[str] = field(default_factory=lambda: ["", "crun", "runc", "runsc"])
    features: pb.RuntimeHandlerFeatures | None = None
    driver: pb.CgroupDriver.ValueType | None = pb.CGROUPFS
    is_ready: bool = True
    has_network: bool = True
    lists_conditions: bool = True
    stuck: set[str] = field(default_factory=set)


# gRPC answers UNIMPLEMENTED to what a fake leaves out; by their types all calls are abstract.
_RuntimeService: Any = RuntimeServiceServicer


class FakeCrio(_RuntimeService):  # type: ignore[misc]  # see above
    """The RuntimeService, as far as a node agent's checks and a cluster's end need it."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.sandboxes: dict[str, pb.PodSandbox] = {}
        self._ids = itertools.count(1)
        self._random = random.Random(1)

    def add(self, name: str, labels: dict[str, str], *, uid: str = "") -> str:
        """Add a sandbox that another client created, and return its id."""
        sandbox_id = f"s{next(self._ids)}"
        self.sandboxes[sandbox_id] = pb.PodSandbox(
            id=sandbox_id,
            metadata=pb.PodSandboxMetadata(name=name, namespace="default", uid=uid or name),
            state=pb.SANDBOX_READY,
            created_at=time.time_ns(),
            labels=labels,
        )
        return sandbox_id

    async def Version(self, _request: Any, _context: Any) -> pb.VersionResponse:  # noqa: N802
        return pb.VersionResponse(
            version="0.1.0",
            runtime_name=self.behaviour.name,
            runtime_version="1.37.0",
            runtime_api_version="v1",
        )

    async def RuntimeConfig(  # noqa: N802
        self, _request: Any, context: aio.ServicerContext[Any, Any]
    ) -> pb.RuntimeConfigResponse:
        driver = self.behaviour.driver
        if driver is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method RuntimeConfig")
        return pb.RuntimeConfigResponse(linux=pb.LinuxRuntimeConfiguration(cgroup_driver=driver))

    async def Status(self, _request: Any, _context: Any) -> pb.StatusResponse:  # noqa: N802
        behaviour = self.behaviour
        handlers = [
            pb.RuntimeHandler(name=name, features=behaviour.features) for name in behaviour.handlers
        ]
        self._random.shuffle(handlers)
        conditions = [
            pb.RuntimeCondition(
                type="RuntimeReady", status=behaviour.is_ready, reason="Why", message="not yet"
            ),
            pb.RuntimeCondition(
                type="NetworkReady", status=behaviour.has_network, reason="NoCNI", message="no file"
            ),
        ]
        listed = conditions if behaviour.lists_conditions else []
        return pb.StatusResponse(
            status=pb.RuntimeStatus(conditions=listed), runtime_handlers=handlers
        )

    async def ListPodSandbox(  # noqa: N802
        self, _request: Any, _context: Any
    ) -> pb.ListPodSandboxResponse:
        return pb.ListPodSandboxResponse(items=self.sandboxes.values())

    async def PodSandboxStatus(  # noqa: N802
        self, request: Any, _context: Any
    ) -> pb.PodSandboxStatusResponse:
        result = self.sandboxes[request.pod_sandbox_id]
        status = pb.PodSandboxStatus(
            id=result.id,
            metadata=result.metadata,
            state=result.state,
            created_at=result.created_at,
            labels=result.labels,
            annotations=result.annotations,
        )
        return pb.PodSandboxStatusResponse(status=status)

    async def StopPodSandbox(  # noqa: N802
        self, request: Any, context: aio.ServicerContext[Any, Any]
    ) -> pb.StopPodSandboxResponse:
        if request.pod_sandbox_id in self.behaviour.stuck:
            await context.abort(grpc.StatusCode.UNKNOWN, "the container does not end")
        sandbox = self.sandboxes.get(request.pod_sandbox_id)
        if sandbox is not None:
            sandbox.state = pb.SANDBOX_NOTREADY
        return pb.StopPodSandboxResponse()

    async def RemovePodSandbox(  # noqa: N802
        self, request: Any, _context: Any
    ) -> pb.RemovePodSandboxResponse:
        self.sandboxes.pop(request.pod_sandbox_id, None)
        return pb.RemovePodSandboxResponse()


@asynccontextmanager
async def serving(fake: FakeCrio, directory: Path) -> AsyncIterator[str]:
    """The endpoint of a fake that serves while the block lasts."""
    endpoint = f"unix://{directory}/crio.sock"
    async with _serving(_registration(fake), endpoint):
        yield endpoint


@contextmanager
def serving_apart(fake: FakeCrio, directory: Path) -> Iterator[str]:
    """The same for tests that do not run in a loop of their own, in a thread."""
    with serving_in_thread(_registration(fake), f"unix://{directory}/crio.sock") as endpoint:
        yield endpoint


@contextmanager
def serving_in_thread(register: Callable[[aio.Server], None], endpoint: str) -> Iterator[str]:
    """Serve what `register` adds to a server, in a thread, while the block lasts."""
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with _serving(register, endpoint):
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(20)
        yield endpoint
    finally:
        over.set()
        thread.join(20)


def _registration(fake: FakeCrio) -> Callable[[aio.Server], None]:
    return lambda server: add_RuntimeServiceServicer_to_server(fake, server)


@asynccontextmanager
async def _serving(register: Callable[[aio.Server], None], endpoint: str) -> AsyncIterator[None]:
    server = aio.server()
    register(server)
    server.add_insecure_port(endpoint)
    await server.start()
    try:
        yield
    finally:
        await server.stop(0)
