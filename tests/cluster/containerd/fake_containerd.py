"""A containerd that has sandboxes in memory only: `fake_containerd.py --config FILE`.

Reads where to listen from a real configuration, tells systemd's way that it is ready, answers the
CRI calls of a start and a teardown, and says on standard output what it was asked.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tomllib
from concurrent import futures
from pathlib import Path
from types import FrameType
from typing import Any

import grpc

from moorage.cri import pb

BEHAVIOUR = "FAKE_CONTAINERD"
"""An environment variable: `dies`, `mute`, `hung` (no answer to lists), or nothing."""


class Sandboxes:
    def __init__(self, behaviour: str) -> None:
        self._behaviour = behaviour
        self._ids = ["s1", "s2"]

    def Version(self, request: Any, context: Any) -> pb.VersionResponse:  # noqa: N802 - CRI's name
        del request, context
        return pb.VersionResponse(version="0.1.0", runtime_name="fake")

    def ListPodSandbox(self, request: Any, context: Any) -> pb.ListPodSandboxResponse:  # noqa: N802
        del request
        if self._behaviour == "hung":
            context.abort(grpc.StatusCode.UNAVAILABLE, "hung")
        return pb.ListPodSandboxResponse(items=[pb.PodSandbox(id=each) for each in self._ids])

    def StopPodSandbox(self, request: Any, context: Any) -> pb.StopPodSandboxResponse:  # noqa: N802
        print("stop", request.pod_sandbox_id, flush=True)
        if request.pod_sandbox_id == "s2":
            context.abort(grpc.StatusCode.UNKNOWN, "cannot be stopped")
        return pb.StopPodSandboxResponse()

    def RemovePodSandbox(  # noqa: N802
        self, request: Any, context: Any
    ) -> pb.RemovePodSandboxResponse:
        del context
        print("remove", request.pod_sandbox_id, flush=True)
        return pb.RemovePodSandboxResponse()


def serve(address: str, sandboxes: Sandboxes) -> None:
    methods = {
        name: grpc.unary_unary_rpc_method_handler(
            getattr(sandboxes, name),
            request_deserializer=getattr(pb, f"{name}Request").FromString,
            response_serializer=lambda reply: reply.SerializeToString(),
        )
        for name in ("Version", "ListPodSandbox", "StopPodSandbox", "RemovePodSandbox")
    }
    server = grpc.server(futures.ThreadPoolExecutor(4))
    handler = grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", methods)
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix://{address}")
    server.start()
    if "NOTIFY_SOCKET" in os.environ:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
    server.wait_for_termination()


def main() -> None:
    behaviour = os.environ.get(BEHAVIOUR, "")
    print("started", flush=True)
    if behaviour == "dies":
        print("no room for the database", file=sys.stderr)
        sys.exit(7)
    if behaviour == "mute":
        signal.pause()
    configuration = tomllib.loads(Path(sys.argv[2]).read_text())
    Path(configuration["grpc"]["address"]).unlink(missing_ok=True)

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        print("stopped", flush=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    serve(configuration["grpc"]["address"], Sandboxes(behaviour))


if __name__ == "__main__":
    main()
