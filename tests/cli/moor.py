"""The commands in the process of the test, on clusters whose parts are fakes: no start of anything.

A cluster is a directory with settings. It runs while a process holds its lock, and its engine is a
small one behind a real socket.
"""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc
import msgspec
from grpc import aio

from moorage.cli.factory import Factory
from moorage.cli.main import main
from moorage.cluster.layout import RUN, Layout
from moorage.cluster.settings import Settings, save
from moorage.wire.cri import engine_pb, pb
from moorage.wire.cri.generated.engine_pb2_grpc import EngineServicer, add_EngineServicer_to_server
from moorage.wire.cri.generated.runtime_pb2_grpc import (
    ImageServiceServicer,
    add_ImageServiceServicer_to_server,
)
from tests.cluster.test_settings import SETTINGS
from tests.fake_crio import serving_in_thread

# Holds a lock as a supervisor does, until its standard input ends.
_HOLDER = """
import fcntl, sys
lock = open(sys.argv[1], "a+")
fcntl.lockf(lock, fcntl.LOCK_EX)
print(flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str


class Terminal(io.StringIO):
    """A terminal to print to."""

    def isatty(self) -> bool:
        return True


@contextmanager
def _variables(changes: Mapping[str, str]) -> Iterator[None]:
    """The process's environment, as click's own runner sets it for a command."""
    former = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(former)


def _run(arguments: Sequence[object]) -> Path:
    """Where engines run: beside the data directory that is given, as `cluster` has it."""
    if "--data-dir" not in arguments[:-1]:
        return RUN
    return Path(str(arguments[arguments.index("--data-dir") + 1])).parent


class FakeFactory(Factory):
    """A factory whose methods a test replaces; `moor` runs commands with it."""

    def moor(self, *arguments: object, **options: Any) -> Answer:
        return moor(*arguments, factory=self, **options)

    def configure_logs(self, level: str) -> None:
        """Leave the logs of the tests as they are."""


def moor(
    *arguments: object,
    terminal: bool = False,
    factory: Factory | None = None,
    environment: Mapping[str, str] | None = None,
    out: io.StringIO | None = None,
    err: io.StringIO | None = None,
) -> Answer:
    """Run a command; `terminal` is what it prints to, `environment` is added to the process's."""
    made = Terminal if terminal else io.StringIO
    out, err = out or made(), err or made()
    status = 0
    with (
        _variables(environment or {}),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main([str(argument) for argument in arguments], factory or Factory(_run(arguments)))
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
    return Answer(status, out.getvalue(), err.getvalue())


def cluster(root: Path, **changes: Any) -> Layout:
    """A cluster in `root/data`, as far as its settings go."""
    layout = Layout(root.resolve() / "data", root.resolve())
    layout.root.mkdir()
    return change(layout, **changes)


def change(layout: Layout, **changes: Any) -> Layout:
    """The same cluster with other settings."""
    settings: Settings = msgspec.structs.replace(SETTINGS, **changes)
    save(layout.settings, settings)
    return layout


def with_kubeconfig(layout: Layout) -> Layout:
    """A cluster with the administrator's kubeconfig, by which no server is reached."""
    layout.kubeconfig.write_text(
        """{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user":
        "u"}}], "clusters": [{"name": "c", "cluster": {"server": "https://api.example:6443"}}],
        "users": [{"name": "u", "user": {"token": "t"}}]}"""
    )
    return layout


class NoApi:
    """A client that only is there."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...


@contextmanager
def locked(layout: Layout) -> Iterator[int]:
    """The cluster runs: the id of a process that holds its lock."""
    argv = [sys.executable, "-ISc", _HOLDER, str(layout.lock)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        try:
            yield holder.pid
        finally:
            holder.kill()


# gRPC answers UNIMPLEMENTED to what a fake leaves out; by their types all calls are abstract.
_ImageService: Any = ImageServiceServicer


@dataclass
class FakeEngine(_ImageService, EngineServicer):  # type: ignore[misc]  # see above
    """Images and handlers in memory. What it was asked is in `loaded`, `saved` and `removed`."""

    images: list[pb.Image] = field(default_factory=list)
    handlers: engine_pb.Handlers = field(default_factory=engine_pb.Handlers)
    loads: list[str] = field(default_factory=list)
    refusal: str = "no archive of images"
    exact: bool = True
    may_load: threading.Event = field(default_factory=threading.Event)
    loaded: list[str] = field(default_factory=list)
    saved: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.may_load.set()

    async def ListImages(self, _request: Any, _context: Any) -> pb.ListImagesResponse:  # noqa: N802
        return pb.ListImagesResponse(images=self.images)

    async def ImageStatus(  # noqa: N802
        self, request: Any, _context: Any
    ) -> pb.ImageStatusResponse:
        name = request.image.image
        images = [image for image in self.images if name in (image.id, *image.repo_tags)]
        return pb.ImageStatusResponse(image=images[0] if images else None)

    async def RemoveImage(  # noqa: N802
        self, request: Any, _context: Any
    ) -> pb.RemoveImageResponse:
        self.removed.append(request.image.image)
        return pb.RemoveImageResponse()

    async def LoadImages(  # noqa: N802
        self, request: Any, context: aio.ServicerContext[Any, Any]
    ) -> engine_pb.LoadImagesResponse:
        if not self.loads:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refusal)
        assert await asyncio.to_thread(self.may_load.wait, 20)
        self.loaded.append(request.archive)
        return engine_pb.LoadImagesResponse(names=self.loads)

    async def SaveImages(  # noqa: N802
        self, request: Any, _context: Any
    ) -> engine_pb.SaveImagesResponse:
        self.saved.extend(request.images)
        await asyncio.to_thread(Path(request.archive).touch)
        saved = [
            engine_pb.SavedImage(name=image, id=f"sha256:{'ab' * 32}", is_exact=self.exact)
            for image in request.images
        ]
        return engine_pb.SaveImagesResponse(images=saved)

    async def WatchHandlers(  # noqa: N802
        self, _request: Any, _context: Any
    ) -> AsyncIterator[engine_pb.Handlers]:
        yield self.handlers


@contextmanager
def serving(fake: FakeEngine, socket: Path) -> Iterator[str]:
    """The endpoint of a fake engine while it serves, in a thread."""
    socket.parent.mkdir(parents=True, exist_ok=True)

    def register(server: aio.Server) -> None:
        add_ImageServiceServicer_to_server(fake, server)
        add_EngineServicer_to_server(fake, server)

    with serving_in_thread(register, f"unix://{socket}") as endpoint:
        yield endpoint
