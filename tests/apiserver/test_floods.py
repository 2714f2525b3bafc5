"""Floods: many requests whose answers no client reads. The server's memory stays bounded.

`make soak` draws other numbers and repeats each flood.
"""

from __future__ import annotations

import json
import os
import random
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from moorage.linux.process_memory import resident_bytes
from tests.apiserver.test_bad_input import Raw
from tests.running import RunningCluster

MAPS = "/api/v1/namespaces/default/configmaps"
IS_SOAK = bool(os.environ.get("MOORAGE_FUZZ"))
SEED = random.randrange(1 << 30) if IS_SOAK else 8
# Without back-pressure each flood passes this within seconds; unread initial events of 60 watches
# took 827 MiB.
LIMIT_BYTES = 160 * 1024 * 1024


@pytest.fixture(scope="module")
def raw(control_plane: RunningCluster) -> Raw:
    return Raw(control_plane)


@pytest.fixture
def bounded(control_plane: RunningCluster, raw: Raw) -> Iterator[Callable[[], int]]:
    """How many bytes the server has grown by; it must stay up and below the limit."""
    part = control_plane.part("apiserver")
    before = resident_bytes(part["pid"]) or 0

    def grown() -> int:
        now = resident_bytes(part["pid"])
        assert now is not None, "the API server has died"
        assert now - before < LIMIT_BYTES, f"grown by {(now - before) >> 20} MiB, seed {SEED}"
        return now - before

    yield grown
    assert raw("GET", "/readyz").status == 200
    assert control_plane.part("apiserver")["restarts"] == part["restarts"]


@pytest.fixture(scope="module")
def maps(raw: Raw) -> Iterator[list[str]]:
    """Config maps of 600 KB each."""
    names = [f"flood-{uuid.uuid4().hex[:8]}" for _ in range(8)]
    for name in names:
        body = {"metadata": {"name": name}, "data": {"x": "y" * 600_000}}
        assert raw("POST", MAPS, body).status == 201
    yield names
    for name in names:
        raw("DELETE", f"{MAPS}/{name}")


@contextmanager
def connections(raw: Raw, count: int) -> Iterator[list[ssl.SSLSocket]]:
    context = raw.admin()
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            plain = socket.socket()
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plain.connect((raw.host, raw.port))
            made.append(stack.enter_context(context.wrap_socket(plain, server_hostname=raw.host)))
        yield made


def _pour(
    sockets: list[ssl.SSLSocket], piece: bytes, seconds: float, look: Callable[[], int]
) -> None:
    """Send a piece on every connection again and again, as far as they take it."""
    left = [piece] * len(sockets)
    for sock in sockets:
        sock.setblocking(False)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for place, sock in enumerate(sockets):
            try:
                left[place] = left[place][sock.send(left[place]) :] or piece
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                continue
            except OSError:
                return
        look()


def _request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def _draw(usual: int, most: int) -> int:
    return random.Random(SEED).randint(usual, most) if IS_SOAK else usual


@pytest.mark.parametrize("size", [50_000, 500_000])
def test_pipelined_requests_that_are_not_read(
    raw: Raw, bounded: Callable[[], int], size: int
) -> None:
    path = f"{MAPS}/flood-{uuid.uuid4().hex[:8]}"
    body = {"metadata": {"name": path.rpartition("/")[2]}, "data": {"x": "y" * size}}
    assert raw("POST", MAPS, body).status == 201
    with connections(raw, _draw(30, 120)) as sockets:
        _pour(sockets, _request(path) * 20, 5, bounded)
    raw("DELETE", path)


def test_lists_that_are_not_read(raw: Raw, maps: list[str], bounded: Callable[[], int]) -> None:
    del maps
    with connections(raw, _draw(20, 60)) as sockets:
        _pour(sockets, _request(f"{MAPS}?limit=500"), 5, bounded)


def test_watches_whose_initial_events_are_not_read(
    raw: Raw, maps: list[str], bounded: Callable[[], int]
) -> None:
    del maps
    with connections(raw, _draw(60, 150)) as sockets:
        for sock in sockets:
            sock.sendall(_request(f"{MAPS}?watch=1"))
        for _ in range(20):
            assert raw("GET", "/readyz").status == 200
            bounded()


def test_watches_that_are_not_read_while_much_changes(
    raw: Raw, maps: list[str], bounded: Callable[[], int]
) -> None:
    with connections(raw, _draw(30, 100)) as sockets:
        for sock in sockets:
            sock.sendall(_request(f"{MAPS}?watch=1"))
        for number in range(_draw(60, 300)):
            patch = json.dumps({"metadata": {"labels": {"n": str(number)}}}).encode()
            path = f"{MAPS}/{maps[number % len(maps)]}"
            assert raw("PATCH", path, patch, "application/merge-patch+json").status == 200
            bounded()


def test_heads_as_large_as_they_may_be(raw: Raw, bounded: Callable[[], int]) -> None:
    head = "GET /readyz HTTP/1.1\r\n" + "".join(f"x{n}: {'y' * 8000}\r\n" for n in range(120))
    with connections(raw, _draw(30, 100)) as sockets:
        _pour(sockets, (head + "\r\n").encode(), 5, bounded)
