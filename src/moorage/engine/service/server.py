"""gRPC server: binds RPCs to servicer methods, and errors to gRPC codes.

`RunPodSandbox` is the method `run_pod_sandbox` of the servicer that has it; a streaming RPC is an
asynchronous generator. A client that disconnects does not interrupt a unary call: it completes, and
a later list shows the result. Source: CRI v1; gRPC status codes.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from grpc import aio

from moorage.api.logs import Log
from moorage.engine.errors import EngineError
from moorage.engine.handlers.adapters import AdapterError, TaskNotFoundError, UnsupportedError
from moorage.wire.cri import engine_pb, pb

log = Log(__name__)

MESSAGE_LIMIT_BYTES = 16 * 1024 * 1024
_GRACE_S = 2.0
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MESSAGE_BYTES = 2400
_ADAPTER_CODES: tuple[tuple[type[AdapterError], grpc.StatusCode], ...] = (
    (TaskNotFoundError, grpc.StatusCode.NOT_FOUND),
    (UnsupportedError, grpc.StatusCode.UNIMPLEMENTED),
    (AdapterError, grpc.StatusCode.UNKNOWN),
)

Unary = Callable[..., Awaitable[Any]]
_Call = TypeVar("_Call", bound=Unary)
_TAKES_METADATA = "_takes_metadata"
Streaming = Callable[[Any], AsyncIterator[Any]]


def with_metadata(method: _Call) -> _Call:
    """Decorate an RPC's method that takes the call's metadata, by key, as second argument."""
    setattr(method, _TAKES_METADATA, True)
    return method


@asynccontextmanager
async def serve(socket: Path, calls: Iterable[object]) -> AsyncIterator[None]:
    """Serve the CRI on a socket with the methods of these servicers, while the block lasts.

    Replaces an existing socket. Raises OSError when it cannot be created.
    """
    server = aio.server(
        options=[
            ("grpc.max_receive_message_length", MESSAGE_LIMIT_BYTES),
            ("grpc.max_send_message_length", MESSAGE_LIMIT_BYTES),
        ]
    )
    objects = tuple(calls)
    for file in (pb.DESCRIPTOR, engine_pb.DESCRIPTOR):
        for service in file.services_by_name.values():
            server.add_generic_rpc_handlers((_service_handler(service, objects),))
    # Bound under another name, so that no client connects before it is served.
    scratch = socket.with_suffix(".new")
    scratch.unlink(missing_ok=True)
    server.add_insecure_port(f"unix:{scratch}")
    await server.start()
    scratch.chmod(0o600)
    scratch.replace(socket)
    try:
        yield
    finally:
        await server.stop(_GRACE_S)
        os.unlink(socket)


def _service_handler(
    service: ServiceDescriptor, objects: tuple[object, ...]
) -> grpc.GenericRpcHandler:
    handlers = {}
    for method in service.methods:
        name = method_name(method.name)
        call = next(
            (getattr(servicer, name) for servicer in objects if hasattr(servicer, name)), None
        )
        if call is not None:
            handlers[method.name] = _rpc_handler(method, call)
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def method_name(call: str) -> str:
    """Return an RPC's method name: `RunPodSandbox` → `run_pod_sandbox`."""
    return _WORD.sub("_", call).lower()


def _rpc_handler(method: MethodDescriptor, call: Any) -> grpc.RpcMethodHandler[Any, Any]:
    request = message_factory.GetMessageClass(method.input_type)
    reply = message_factory.GetMessageClass(method.output_type)
    make: Any = (
        grpc.unary_stream_rpc_method_handler
        if method.server_streaming
        else grpc.unary_unary_rpc_method_handler
    )
    behaviour = _streaming(call) if method.server_streaming else _unary(method.name, call)
    handler: grpc.RpcMethodHandler[Any, Any] = make(
        behaviour,
        request_deserializer=request.FromString,
        response_serializer=reply.SerializeToString,
    )
    return handler


def _unary(
    name: str, call: Unary
) -> Callable[[Any, aio.ServicerContext[Any, Any]], Awaitable[Any]]:
    async def behaviour(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        began = time.perf_counter()
        work = asyncio.ensure_future(
            call(request, dict(context.invocation_metadata() or ()))
            if getattr(call, _TAKES_METADATA, False)
            else call(request)
        )
        try:
            reply = await asyncio.shield(work)
        except asyncio.CancelledError:
            log.debug("client disconnected, the call continues", call=name)
            work.add_done_callback(lambda done: _note_abandoned(name, done))
            raise
        except Exception as error:
            code, sentence = answer_to(name, error)
            log.debug(
                "failed", call=name, took_ms=_ms_since(began), code=code.name, reason=sentence
            )
            await context.abort(code, sentence)
        log.debug("answered", call=name, took_ms=_ms_since(began))
        return reply

    return behaviour


def _ms_since(began: float) -> float:
    return round(1000 * (time.perf_counter() - began), 1)


def _streaming(
    call: Streaming,
) -> Callable[[Any, aio.ServicerContext[Any, Any]], AsyncIterator[Any]]:
    async def behaviour(request: Any, context: aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        try:
            async for reply in call(request):
                yield reply
        except Exception as error:
            await context.abort(*answer_to("stream", error))

    return behaviour


def answer_to(call: str, error: Exception) -> tuple[grpc.StatusCode, str]:
    """Return the gRPC status and message for an error; logs an unexpected one in full."""
    if isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        return answer_to(call, error.exceptions[0])
    if isinstance(error, EngineError):
        return error.code, _bounded(error.sentence)
    for kind, code in _ADAPTER_CODES:
        if isinstance(error, kind):
            return code, _bounded(" ".join(str(error).split()))
    log.exception("call failed", call=call)
    sentence = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return grpc.StatusCode.UNKNOWN, _bounded(sentence)


def _bounded(sentence: str) -> str:
    """Return a message that fits the headers of an answer, in which a byte may take three.

    Images and runtimes wrote some of it. The end stays: it is the remedy. Source: gRPC over HTTP/2,
    `Status-Message`, and its clients' limit of 8 KiB for headers.
    """
    content = sentence.encode(errors="replace")
    if len(content) <= _MESSAGE_BYTES:
        return sentence
    first, last = content[: _MESSAGE_BYTES * 3 // 4], content[-_MESSAGE_BYTES // 4 :]
    return f"{first.decode(errors='ignore')} … {last.decode(errors='ignore')}"


def _note_abandoned(call: str, done: asyncio.Future[Any]) -> None:
    """Log the failure of a call whose client has disconnected."""
    error = None if done.cancelled() else done.exception()
    if error is not None:
        log.warning("call failed after the client disconnected", call=call, reason=error)
