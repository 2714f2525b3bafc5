"""Liveness probes: non-blocking requests to the socket a part serves on.

A probe is a generator that yields the descriptor and the event it waits for, and ends when the part
has answered; it raises OSError when the part refuses or its answer is invalid. The caller sets the
deadline. The supervisor runs probes in its own loop, so this module imports little.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import struct
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from moorage.cluster.access.credentials import Pair

if TYPE_CHECKING:
    import ssl


# Liveness of parts: when a part is probed, and when it counts as hung.
#
# A part is restarted only after several probes in a row have failed, and not before a deadline.
# Time in which the supervisor itself did not run (a stopped process, a frozen VM) does not count;
# the monotonic clock of a suspended host stops anyway.


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """Deadlines in seconds. A part is probed every `period_s`, with `answer_s` for each answer.

    After `quiet_after` missed answers it is reported as not answering; after `hung_after` of them,
    and not before `deadline_s`, it is restarted. So is a part that is not ready `start_s` after its
    start; the next start has twice the time, up to `longest_start_s`: a slow start (a large store
    on a slow disk) must succeed in the end.
    """

    period_s: float = 5.0
    answer_s: float = 5.0
    deadline_s: float = 30.0
    quiet_after: int = 2
    hung_after: int = 4
    start_s: float = 120.0
    longest_start_s: float = 960.0


class AttendedClock:
    """Counts the seconds in which this process ran, from a monotonic clock."""

    def __init__(self, now: float, longest_wait_s: float) -> None:
        self._last = now
        self._longest_wait_s = longest_wait_s
        self.seconds = 0.0

    def tick(self, now: float) -> float:
        """Record the time after a wait. Return the seconds attended since the start."""
        self.seconds += min(now - self._last, self._longest_wait_s)
        self._last = now
        return self.seconds


class Liveness(msgspec.Struct):
    """The answers of one process. Times are of an `AttendedClock`."""

    patience: Patience
    answered_at: float
    misses: int = 0

    def answered(self, now: float) -> None:
        """Record an answer."""
        self.answered_at = now
        self.misses = 0

    def missed(self) -> None:
        """Record that an answer did not come in time."""
        self.misses += 1

    @property
    def is_quiet(self) -> bool:
        """Whether the process is reported as not answering."""
        return self.misses >= self.patience.quiet_after

    def is_hung(self, now: float) -> bool:
        """Return whether the process has to be restarted."""
        return (
            self.misses >= self.patience.hung_after
            and now - self.answered_at >= self.patience.deadline_s
        )


Probe = Generator[tuple[int, int], None, None]
MakeProbe = Callable[[], Probe]

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_ANSWER_BYTES = 4096

# HTTP/2 as far as one gRPC call needs it. Source: RFC 9113 §3.4, §4.1, §6; RFC 7541 §6.2.2.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_HEAD_BYTES = 9
_DATA, _HEADERS, _SETTINGS, _GOAWAY = 0, 1, 4, 7
_END_STREAM, _END_HEADERS = 1, 4
_STREAM = 1
# Flag byte and length of an empty message. Source: gRPC over HTTP2, "Length-Prefixed-Message".
_EMPTY_MESSAGE = b"\0" * 5
_VERSION_CALL = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/runtime.v1.RuntimeService/Version"),
    (b":authority", b"localhost"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
)


class HttpsProbe:
    """Probe that requests `https://ADDRESS:PORT/PATH`; any status below 500 is an answer."""

    def __init__(self, address: str, port: int, path: str, pair: Pair, authority: Path) -> None:
        self._target = (address, port)
        self._path = path
        self._pair = pair
        self._authority = authority
        self._context: ssl.SSLContext | None = None

    def __call__(self) -> Probe:
        import ssl

        context = self._context = self._context or self._tls()
        with socket.socket() as plain:
            yield from _connected(plain, self._target)
            with context.wrap_socket(plain, do_handshake_on_connect=False) as tls:
                request = f"GET {self._path} HTTP/1.1\r\nHost: {self._target[0]}\r\n"
                yield from _retried(tls, tls.do_handshake)
                # Small enough for any socket buffer.
                tls.sendall(f"{request}Connection: close\r\n\r\n".encode())
                answer: list[bytes] = []
                yield from _retried(tls, lambda: answer.append(tls.recv(_ANSWER_BYTES)))
                _check_status(answer[0], ssl.SSLError)

    def _tls(self) -> ssl.SSLContext:
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # The authority is the cluster's own; the address is not always in the certificate.
        context.check_hostname = False
        context.load_verify_locations(self._authority)
        context.load_cert_chain(self._pair.certificate, self._pair.key)
        return context


class CriProbe:
    """Probe that calls the CRI's `Version` on a socket, which the engine's event loop answers."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> Probe:
        with socket.socket(socket.AF_UNIX) as plain:
            yield from _connected(plain, str(self._path))
            headers = b"".join(
                b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value
                for name, value in _VERSION_CALL
            )
            plain.sendall(
                _PREFACE
                + _frame(_SETTINGS, 0, 0, b"")
                + _frame(_HEADERS, _END_HEADERS, _STREAM, headers)
                + _frame(_DATA, _END_STREAM, _STREAM, _EMPTY_MESSAGE)
            )
            received = b""
            while not _has_answer(received):
                yield plain.fileno(), _READ
                piece = plain.recv(_ANSWER_BYTES)
                if not piece:
                    raise ConnectionResetError("the engine closed the connection")
                received += piece


def _connected(plain: socket.socket, target: tuple[str, int] | str) -> Probe:
    plain.setblocking(False)
    error = plain.connect_ex(target)
    if error == errno.EINPROGRESS:
        yield plain.fileno(), _WRITE
        error = plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))


def _retried(tls: ssl.SSLSocket, step: Callable[[], object]) -> Probe:
    """Repeat a step of TLS until it completes without waiting."""
    import ssl

    while True:
        try:
            step()
        except ssl.SSLWantReadError:
            yield tls.fileno(), _READ
        except ssl.SSLWantWriteError:
            yield tls.fileno(), _WRITE
        else:
            return


def _check_status(answer: bytes, kind: type[OSError]) -> None:
    version, _, rest = answer.partition(b" ")
    if not version.startswith(b"HTTP/1.") or rest[:1] in (b"", b"5"):
        raise kind(f"answered {answer[:40]!r}")


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _has_answer(received: bytes) -> bool:
    """Return whether the answer's headers have arrived. Raises ConnectionResetError on GOAWAY."""
    while len(received) >= _FRAME_HEAD_BYTES:
        length = int.from_bytes(received[:3], "big")
        kind, _, stream = struct.unpack(">BBI", received[3:_FRAME_HEAD_BYTES])
        if kind == _HEADERS and stream == _STREAM:
            return True
        if kind == _GOAWAY:
            raise ConnectionResetError("the engine refuses calls")
        received = received[_FRAME_HEAD_BYTES + length :]
    return False
