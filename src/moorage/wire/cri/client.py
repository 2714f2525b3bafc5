"""CRI client: calls of a container engine.

    async with CriClient("unix:///run/containerd/containerd.sock") as cri:
        reply = await cri.call(cri.runtime.Version, pb.VersionRequest())

Every failure is a `CriError` with the engine's message. Source: CRI v1, kubelet's deadlines
(`runtimeRequestTimeout`, 2 minutes; twice that for RunPodSandbox).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Self, TypeVar

import grpc
import msgspec
from grpc import aio

from moorage.api.nodes import NodeRuntimeHandler, NodeRuntimeHandlerFeatures
from moorage.wire.cri.generated import runtime_pb2 as pb
from moorage.wire.cri.generated.engine_pb2_grpc import EngineStub
from moorage.wire.cri.generated.runtime_pb2_grpc import ImageServiceStub, RuntimeServiceStub

if TYPE_CHECKING:
    from moorage.wire.cri.generated.engine_pb2_grpc import EngineAsyncStub
    from moorage.wire.cri.generated.runtime_pb2_grpc import (
        ImageServiceAsyncStub,
        RuntimeServiceAsyncStub,
    )


Request = TypeVar("Request")
Reply = TypeVar("Reply")

REQUEST_TIMEOUT_S = 120.0
SANDBOX_TIMEOUT_S = 2 * REQUEST_TIMEOUT_S
RECONNECT_S = 5.0
"""How long a request of a user waits for an engine that restarts: twice the longest backoff."""
OUTPUT_TAIL = "moorage-output-tail-bytes"
"""Metadata of ExecSync: Moorage's engine keeps as many of the last bytes of each stream."""
_NO_METADATA: Mapping[str, str] = MappingProxyType({})
_CONNECTED = grpc.ChannelConnectivity.READY
_MESSAGE_LIMIT_BYTES = 16 * 1024 * 1024
_COMMAND_LIMIT_BYTES = 1024 * 1024


class CriError(Exception):
    """A refused or failed call: its name, the gRPC code, and the engine's message."""

    def __init__(self, method: str, code: grpc.StatusCode, sentence: str) -> None:
        super().__init__(f"rpc error: code = {_spoken(code)} desc = {sentence}")
        self.method = method
        self.code = code
        self.sentence = sentence

    @property
    def is_not_found(self) -> bool:
        return self.code is grpc.StatusCode.NOT_FOUND

    @property
    def is_unimplemented(self) -> bool:
        """Whether the engine does not implement the call."""
        return self.code is grpc.StatusCode.UNIMPLEMENTED

    @property
    def is_timeout(self) -> bool:
        return self.code is grpc.StatusCode.DEADLINE_EXCEEDED


class CriClient:
    """A connection to one engine. `endpoint` is `unix:///absolute/path`.

    Raises ValueError at construction for any other kind of endpoint.
    """

    runtime: RuntimeServiceAsyncStub
    images: ImageServiceAsyncStub
    engine: EngineAsyncStub
    """The extension of Moorage's engine; other engines answer UNIMPLEMENTED."""
    commands: RuntimeServiceAsyncStub
    """The runtime service by a connection whose replies are bounded to 1 MiB: for ExecSync, whose
    reply's size is a container's choice. A longer one is RESOURCE_EXHAUSTED.
    """

    def __init__(self, endpoint: str) -> None:
        if not endpoint.startswith("unix:///"):
            raise ValueError(f"CRI endpoint {endpoint!r} is not of the form unix:///path")
        self.endpoint = endpoint
        self._channel: aio.Channel | None = None
        self._command_channel: aio.Channel | None = None
        self.on_call: Callable[[str, float, bool], None] | None = None
        """Called after each call: the RPC's name, its seconds, whether it failed."""

    async def __aenter__(self) -> Self:
        self._channel = self._connection(_MESSAGE_LIMIT_BYTES)
        self.runtime = RuntimeServiceStub(self._channel)
        self.images = ImageServiceStub(self._channel)
        self.engine = EngineStub(self._channel)
        self._command_channel = self._connection(_COMMAND_LIMIT_BYTES)
        self.commands = RuntimeServiceStub(self._command_channel)
        return self

    def _connection(self, reply_limit_bytes: int) -> aio.Channel:
        """Return a channel, which connects with its first call."""
        return aio.insecure_channel(
            self.endpoint,
            options=[
                # Go servers refuse the socket path that gRPC would send as authority.
                ("grpc.default_authority", "localhost"),
                ("grpc.max_receive_message_length", reply_limit_bytes),
                ("grpc.max_send_message_length", _MESSAGE_LIMIT_BYTES),
                # Without a shared subchannel: a new client would wait out the backoff of an older
                # client's failure, although the engine is back.
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 2000),
            ],
        )

    async def __aexit__(self, *_: object) -> None:
        for channel in (self._channel, self._command_channel):
            if channel is not None:
                await channel.close()

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Reply],
        request: Request,
        *,
        timeout_s: float | None = REQUEST_TIMEOUT_S,
        reconnect_s: float = 0.0,
        metadata: Mapping[str, str] = _NO_METADATA,
    ) -> Reply:
        """Call an RPC; `timeout_s` None waits for ever (image pulls). Raises CriError.

        `reconnect_s` bounds the wait for a connection before the call. Without it a call fails at
        once, with the last failure, while gRPC's backoff after a lost connection lasts.
        """
        if reconnect_s:
            await self._wait_connected(reconnect_s)
        loop = asyncio.get_running_loop()
        started_s, has_failed = loop.time(), True
        try:
            reply = await method(request, timeout=timeout_s, metadata=tuple(metadata.items()))
            has_failed = False
        except aio.AioRpcError as error:
            raise _translated(method, error) from error
        finally:
            if self.on_call is not None:
                self.on_call(_name(method), loop.time() - started_s, has_failed)
        return reply

    async def _wait_connected(self, within_s: float) -> None:
        """Wait for a connection; returns without one when the time is over."""
        assert self._channel is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while (state := self._channel.get_state(try_to_connect=True)) != _CONNECTED:
                    await self._channel.wait_for_state_change(state)

    async def stream(
        self, method: grpc.aio.UnaryStreamMultiCallable[Request, Reply], request: Request
    ) -> AsyncIterator[Reply]:
        """Yield the responses of a streaming RPC, until the engine ends it. Raises CriError."""
        try:
            async for reply in method(request):
                yield reply
        except aio.AioRpcError as error:
            raise _translated(method, error) from error


def _translated(method: object, error: aio.AioRpcError) -> CriError:
    return CriError(_name(method), error.code(), error.details() or "")


def _name(method: object) -> str:
    """Return the name of an RPC: `RunPodSandbox`."""
    path = getattr(method, "_method", b"")
    return (path.decode() if isinstance(path, bytes) else str(path)).rsplit("/", 1)[-1]


def _spoken(code: grpc.StatusCode) -> str:
    """Return the code as Go prints it: `NotFound`, `DeadlineExceeded`."""
    return "".join(word.capitalize() for word in code.name.split("_"))


# Runtime handlers of an engine, of any version.
#
# Engines since 2024 list them in `Status` (KEP-3857, KEP-127). Older containerd reports them only
# in the configuration of a verbose `Status`. An engine that does neither is refused: a class
# could not be scheduled.

STATUS_TIMEOUT_S = 10.0
_CONFIGURATION = "config"


class HandlersUnknownError(Exception):
    """The engine does not report its runtime handlers."""

    def __init__(self, engine: str, endpoint: str) -> None:
        super().__init__(
            f"the engine {engine} at {endpoint} does not report its runtime handlers, so "
            "RuntimeClasses cannot work with it: use containerd 1.3 or later, or CRI-O 1.31 or "
            "later, or leave out --cri for an engine of our own"
        )


class _ContainerdRuntimes(msgspec.Struct, frozen=True, rename="camel"):
    runtimes: dict[str, msgspec.Raw]
    default_runtime_name: str = ""


class _ContainerdConfiguration(msgspec.Struct, frozen=True):
    containerd: _ContainerdRuntimes


async def handlers_of(cri: CriClient) -> tuple[NodeRuntimeHandler, ...]:
    """Return `node.status.runtimeHandlers` for an engine; the name `""` is its default handler.

    Raises HandlersUnknownError for an engine that does not report them, CriError when the call
    fails.
    """
    listed = handlers_in(await _status(cri, is_verbose=False))
    if not listed:
        # The verbose form makes an engine serialise its whole configuration, so only if needed.
        listed = handlers_in(await _status(cri, is_verbose=True))
    if not listed:
        version = await cri.call(
            cri.runtime.Version, pb.VersionRequest(version="0.1.0"), timeout_s=STATUS_TIMEOUT_S
        )
        engine = f"{version.runtime_name} {version.runtime_version}"
        raise HandlersUnknownError(engine, cri.endpoint)
    return listed


def handlers_in(reply: pb.StatusResponse) -> tuple[NodeRuntimeHandler, ...]:
    """Return the handlers in a `Status` response, in the engine's order; none if it lists none.

    Both features are always written, as the kubelet does; an engine too old to list its handlers
    supports neither, whatever its runtimes support.
    """
    if reply.runtime_handlers:
        return tuple(
            _handler(
                runtime_handler.name,
                recursive_read_only=runtime_handler.features.recursive_read_only_mounts,
                user_namespaces=runtime_handler.features.user_namespaces,
            )
            for runtime_handler in reply.runtime_handlers
        )
    return tuple(map(_handler, _configured(reply.info.get(_CONFIGURATION, ""))))


async def _status(cri: CriClient, *, is_verbose: bool) -> pb.StatusResponse:
    request = pb.StatusRequest(verbose=is_verbose)
    return await cri.call(cri.runtime.Status, request, timeout_s=STATUS_TIMEOUT_S)


def _configured(configuration: str) -> list[str]:
    """Return the handler names in containerd's configuration, the default first."""
    try:
        parsed = msgspec.json.decode(configuration, type=_ContainerdConfiguration)
    except (msgspec.DecodeError, RecursionError):
        # Other engines have another format here, or nothing.
        return []
    names = sorted(parsed.containerd.runtimes)
    return ["", *names] if parsed.containerd.default_runtime_name in names else names


def _handler(
    name: str, *, recursive_read_only: bool = False, user_namespaces: bool = False
) -> NodeRuntimeHandler:
    return NodeRuntimeHandler(
        name=name,
        features=NodeRuntimeHandlerFeatures(
            recursive_read_only_mounts=recursive_read_only, user_namespaces=user_namespaces
        ),
    )
