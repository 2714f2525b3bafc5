"""Probes, driven step by step against servers that answer, refuse, or say nothing."""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest

from moorage.cluster.access.identities import Authority, Subject
from moorage.cluster.supervision.probes import CriProbe, HttpsProbe, MakeProbe

WITHIN_S = 10.0


def ask(make: MakeProbe, within_s: float = WITHIN_S) -> bool:
    """Whether the probe has ended in time. Raises what the probe raises."""
    deadline = time.monotonic() + within_s
    with closing(make()) as probe, selectors.DefaultSelector() as selector:
        for descriptor, events in probe:
            selector.register(descriptor, events)
            is_due = selector.select(max(deadline - time.monotonic(), 0.0))
            selector.unregister(descriptor)
            if not is_due:
                return False
    return True


class Https:
    """A server that accepts one connection after the other, and what it says to each."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "pki", datetime.now(UTC))
        self.client = self.authority.issue("client", Subject("client"))
        pair = self.authority.issue("server", Subject("server", hosts=("elsewhere",)))
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(pair.certificate, pair.key)
        self._tls.load_verify_locations(self.authority.pair.certificate)
        self._tls.verify_mode = ssl.CERT_REQUIRED

    @contextmanager
    def saying(self, answer: bytes) -> Iterator[MakeProbe]:
        with self.listening(answer) as port:
            yield self.probe(port)

    @contextmanager
    def listening(self, answer: bytes) -> Iterator[int]:
        def serve() -> None:
            try:
                plain, _ = listener.accept()
                with self._tls.wrap_socket(plain, server_side=True) as tls:
                    tls.recv(4096)
                    tls.sendall(answer)
            except OSError:
                return

        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=serve)
            thread.start()
            yield listener.getsockname()[1]
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()

    def probe(self, port: int) -> HttpsProbe:
        authority = self.authority.pair.certificate
        return HttpsProbe("127.0.0.1", port, "/livez", self.client, authority)


@pytest.fixture
def https(tmp_path: Path) -> Https:
    return Https(tmp_path)


@pytest.mark.parametrize("status", [200, 401, 429])
def test_any_answer_but_a_fault_is_one(https: Https, status: int) -> None:
    with https.saying(b"HTTP/1.1 %d Whatever\r\n\r\n" % status) as probe:
        assert ask(probe)


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 500 Broken\r\n\r\n", b"HTTP/1.1 ", b"HTTP/1.1", b"HTTP/2 200", b"220 smtp"],
)
def test_invalid_answer_is_an_error(https: Https, answer: bytes) -> None:
    with https.saying(answer) as probe, pytest.raises(ssl.SSLError):
        ask(probe)


def test_closed_port_is_refused(https: Https) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        ask(https.probe(port))


def test_a_server_of_another_authority_is_not_the_part(https: Https, tmp_path: Path) -> None:
    stranger = Https(tmp_path / "other")
    with stranger.listening(b"HTTP/1.1 200 OK\r\n\r\n") as port, pytest.raises(ssl.SSLError):
        ask(https.probe(port))


def test_silent_server_gives_no_answer_within_the_deadline(https: Https) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert not ask(https.probe(listener.getsockname()[1]), within_s=0.2)


@contextmanager
def _engine(path: Path, *handlers: grpc.GenericRpcHandler) -> Iterator[None]:
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    server.add_generic_rpc_handlers(handlers)
    server.add_insecure_port(f"unix://{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


class _Version(grpc.GenericRpcHandler):
    """Answers the call, or never does."""

    def __init__(self, answer: Callable[[], bytes]) -> None:
        self._answer = answer
        self.methods: list[str] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        self.methods.append(details.method)
        return grpc.unary_unary_rpc_method_handler(lambda *_: self._answer())


def test_an_engine_answers(tmp_path: Path) -> None:
    version = _Version(lambda: b"")
    with _engine(tmp_path / "s", version):
        assert ask(CriProbe(tmp_path / "s"))
    assert version.methods == ["/runtime.v1.RuntimeService/Version"]


def test_an_engine_takes_the_call_and_never_answers(tmp_path: Path) -> None:
    ends = threading.Event()

    def wait() -> bytes:
        ends.wait()
        return b""

    with _engine(tmp_path / "s", _Version(wait)):
        assert not ask(CriProbe(tmp_path / "s"), within_s=0.3)
        ends.set()


def test_an_engine_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ask(CriProbe(tmp_path / "s"))
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s"))
    with pytest.raises(ConnectionRefusedError):
        ask(CriProbe(tmp_path / "s"))


@contextmanager
def answering(path: Path, answer: bytes) -> Iterator[CriProbe]:
    """An engine that says this to its first caller and closes the connection."""

    def serve() -> None:
        caller, _ = listener.accept()
        with caller:
            caller.recv(4096)
            caller.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield CriProbe(path)
        finally:
            thread.join()


def frame(kind: int, stream: int) -> bytes:
    return struct.pack(">I", 2)[1:] + struct.pack(">BBI", kind, 0, stream) + b"xy"


@pytest.mark.parametrize(
    ("frames", "error"),
    [
        ((), "closed the connection"),
        (((4, 0),), "closed the connection"),
        (((1, 1),), None),
        (((1, 3),), "closed the connection"),
        (((0, 1),), "closed the connection"),
        (((4, 0), (6, 0), (1, 1)), None),
        (((4, 0), (7, 0)), "the engine refuses calls"),
    ],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_which_frames_are_an_answer(
    tmp_path_factory: pytest.TempPathFactory,
    frames: tuple[tuple[int, int], ...],
    error: str | None,
    is_whole: bool,
) -> None:
    received = b"".join(frame(kind, stream) for kind, stream in frames)
    # A frame that is not whole says nothing yet, but for its head.
    if not is_whole:
        received, error = received[:8], "closed the connection"
    with answering(tmp_path_factory.mktemp("s") / "s", received) as probe:
        if error is None:
            assert ask(probe)
        else:
            with pytest.raises(ConnectionResetError, match=error):
                ask(probe)
