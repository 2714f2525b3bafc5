"""Fan-out of watches: `.venv/bin/python -m bench.watchers [--watchers 1000] [--rate 500]`.

Starts an API server of its own. Many clients watch config maps over TLS in a second process, a
third one updates config maps at a steady rate. Prints how long an event takes from the update's
request to the watchers (p50, p99, of every twentieth watcher), how many were delivered, and the
processor time of the server and of the watchers for each. The clients share the machine: with 2
cores the watchers alone need one.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import re
import ssl
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import uvloop

from bench.large_store import cpu_s
from bench.own_api import administrator, process
from moorage.cluster.layout import Layout

_PATH = "/api/v1/namespaces/default/configmaps"
_OBJECTS = 64
_SAMPLED = 20
_STAMP = re.compile(rb'"stamp":"(\d+)"')
_EVENT = b'"type":"MODIFIED"'
_CONNECT_AT_ONCE = 32
_CALM_S = 1.0


@dataclass(frozen=True)
class Load:
    """What is loaded, and how."""

    url: str
    token: str
    watchers: int
    rate: float
    seconds: float

    def head(self, method: str, path: str, length: int = 0) -> bytes:
        lines = (
            f"{method} {path} HTTP/1.1", f"Host: {urlsplit(self.url).netloc}",
            f"Authorization: Bearer {self.token}", "Content-Type: application/json",
            f"Content-Length: {length}",
        )  # fmt: skip
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def connect(self, protocol: Callable[[], asyncio.Protocol]) -> Any:
        parts = urlsplit(self.url)
        context = ssl._create_unverified_context()
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(protocol, parts.hostname, parts.port, ssl=context)
        return made


class _Watch(asyncio.Protocol):
    """One watch: counts events, and notes how long they took if `taken_ns` is given."""

    def __init__(self, request: bytes, taken_ns: list[int] | None) -> None:
        self._request = request
        self._taken_ns = taken_ns
        self._rest = b""
        self.count = 0
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.is_open = True
        now_ns = time.monotonic_ns()
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        whole, self._rest = data[:end], data[end:]
        self.count += whole.count(_EVENT)
        if self._taken_ns is not None:
            self._taken_ns += [now_ns - int(stamp) for stamp in _STAMP.findall(whole)]


class _Answer(asyncio.Protocol):
    """A connection for one request at a time, answered with a length."""

    def __init__(self) -> None:
        self._received = b""
        self._done: asyncio.Future[bytes]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    async def ask(self, request: bytes) -> bytes:
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._done

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return
        length = re.search(rb"(?i)content-length: (\d+)", head)
        assert length is not None, head
        if len(body) >= int(length[1]):
            self._received = b""
            self._done.set_result(head)


async def _watch(load: Load, pipe: Any) -> None:
    """Open the watches, report that they are, and what they saw once the other side asks."""
    request = load.head("GET", f"{_PATH}?watch=1&timeoutSeconds=600&resourceVersion=0")
    taken_ns: list[int] = []
    watches: list[_Watch] = []

    async def open_next() -> None:
        while len(watches) < load.watchers:
            sampled = taken_ns if len(watches) % _SAMPLED == 0 else None
            watch = _Watch(request, sampled)
            watches.append(watch)
            await load.connect(lambda watch=watch: watch)  # type: ignore[misc]

    await asyncio.gather(*(open_next() for _ in range(_CONNECT_AT_ONCE)))
    while not all(watch.is_open for watch in watches):
        await asyncio.sleep(0.05)
    pipe.send(time.process_time())
    await asyncio.to_thread(pipe.recv)
    pipe.send((sum(watch.count for watch in watches), taken_ns, time.process_time()))


async def _write(load: Load, pipe: Any) -> None:
    """Create the objects; then update them at the rate, and report the number of updates."""
    writers = [await load.connect(_Answer) for _ in range(_OBJECTS)]
    for number, writer in enumerate(writers):
        await writer.ask(_body(load, "POST", number))
    pipe.send(None)
    await asyncio.to_thread(pipe.recv)
    began, count = time.monotonic(), 0

    async def update(number: int) -> None:
        nonlocal count
        due = began + number / load.rate
        while due < began + load.seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            head = await writers[number].ask(_body(load, "PUT", number))
            assert b" 200 " in head[:20], head
            count += 1
            due += _OBJECTS / load.rate

    await asyncio.gather(*map(update, range(_OBJECTS)))
    pipe.send((count, time.monotonic() - began))


def _body(load: Load, method: str, number: int) -> bytes:
    name = f"fan-out-{number}"
    obj = {"metadata": {"name": name}, "data": {"stamp": str(time.monotonic_ns())}}
    body = msgspec.json.encode(obj)
    path = _PATH if method == "POST" else f"{_PATH}/{name}"
    return load.head(method, path, len(body)) + body


def _run(role: Callable[[Load, Any], Awaitable[None]], load: Load, pipe: Any) -> None:
    async def run() -> None:
        await role(load, pipe)

    uvloop.run(run())


def measure(load: Load, pid: int) -> None:
    """Load a server, whose process is given, and print what was seen."""
    spawn = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    # The objects are there before the watches, which see updates only.
    for role in (_write, _watch):
        ours, theirs = spawn.Pipe()
        child = spawn.Process(target=_run, args=(role, load, theirs))
        child.start()
        pipes.append(ours)
        processes.append(child)
        ready = ours.recv()
    writer, watcher = pipes
    client_s, server_s = ready, cpu_s(pid)
    writer.send(None)
    updates, took_s = writer.recv()
    time.sleep(_CALM_S)
    server_s = cpu_s(pid) - server_s
    watcher.send(None)
    delivered, taken_ns, client_end_s = watcher.recv()
    for child in processes:
        child.join()
    percentiles = statistics.quantiles(taken_ns, n=100)
    print(
        f"{load.watchers} watchers, {updates / took_s:.0f} updates a second (wanted "
        f"{load.rate:.0f}): delivered {delivered} of {updates * load.watchers}"
    )
    print(f"latency p50 {percentiles[49] / 1e6:.1f} ms, p99 {percentiles[98] / 1e6:.1f} ms")
    print(
        f"processor time for a delivered event: server {server_s / delivered * 1e6:.2f} µs, "
        f"watchers {(client_end_s - client_s) / delivered * 1e6:.2f} µs; of a core: server "
        f"{server_s / took_s:.0%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, process(Path(scratch)) as running:
        url, token = asyncio.run(administrator(Layout(Path(scratch))))
        measure(Load(url, token, options.watchers, options.rate, options.seconds), running.pid)


if __name__ == "__main__":
    main()
