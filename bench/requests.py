"""What one request costs: `.venv/bin/python -m bench.requests [GET|POST|DRY|LIST …]`.

Requests are given to the connections of an API server in this process, without TLS and sockets,
32 at a time, and the processor time of the loop's thread is counted. DRY is a POST that is not
stored. Each figure is the best of many rounds, so it can be compared on a machine with other load,
where requests a second cannot. `--profile` prints the functions in which the time is spent, by
cProfile, whose own cost inflates small ones.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import ipaddress
import json
import pstats
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import web

from bench.api import CLASS, LISTED, NAMESPACE
from moorage.api.clock import SystemClock
from moorage.apiserver.aggregation import FrontProxy
from moorage.apiserver.authentication.authenticator import StaticToken
from moorage.apiserver.endpoints.node_agents import NodeTls
from moorage.apiserver.server.assembly import Api, ApiOptions, assemble
from moorage.apiserver.server.bootstrap import bootstrap, write_service_network
from moorage.apiserver.storage import SqliteStore
from moorage.cluster.access.certificates import Authority, Subject
from moorage.wire.serving.connection import HttpConnection

CONNECTIONS = 32
SORT = "tottime"
_HEAD = "Host: 127.0.0.1:6443\r\nAuthorization: Bearer bench\r\nContent-Type: application/json\r\n"


class Wire:
    """A transport that keeps the last piece written to it and says when an answer is complete."""

    def __init__(self) -> None:
        self.answered = asyncio.Event()
        self.last = b""

    def write(self, data: Any) -> None:
        self.last = bytes(data)
        if b"Transfer-Encoding" not in self.last[:400] and not self._is_amid_chunks():
            self.answered.set()

    def writelines(self, parts: Sequence[Any]) -> None:
        self.write(b"".join(parts))

    def _is_amid_chunks(self) -> bool:
        return not self.last.startswith(b"HTTP/1.1 ") and not self.last.endswith(b"0\r\n\r\n")

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 1) if name == "peername" else default

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, **_: int) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


def request_bytes(method: str, path: str, body: object = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    length = f"Content-Length: {len(content)}\r\n" if content else ""
    return f"{method} {path} HTTP/1.1\r\n{_HEAD}{length}\r\n".encode() + content


def pod(name: str) -> dict[str, Any]:
    return {
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": name},
        "spec": {"runtimeClassName": CLASS, "automountServiceAccountToken": False, "containers": [
            {"name": "app", "image": "app:1",
             "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}}}]},
    }  # fmt: skip


class Bench:
    """An assembled API server and connections to it."""

    def __init__(self, api: Api) -> None:
        server = web.Server(api.handler, handler_cancellation=True)
        self.wires = [Wire() for _ in range(CONNECTIONS)]
        self.connections = [
            HttpConnection(
                server,
                idle_s=1000,
                on_proven=lambda _: True,
                on_lost=lambda: None,
                at_once=api.at_once,
            )
            for _ in self.wires
        ]
        for connection, wire in zip(self.connections, self.wires, strict=True):
            connection.connection_made(wire)  # type: ignore[arg-type]
        self._count = 0

    async def ask(self, *requests: bytes) -> bytes:
        """Send a request on each connection at once; return the last piece of the last answer."""
        # As long as the bytes of an answer are on their way, its connection is made ready.
        for _ in range(3):
            await asyncio.sleep(0)
        used = list(zip(self.connections, self.wires, requests, strict=False))
        for connection, wire, request in used:
            wire.answered.clear()
            connection.data_received(request)
        for _, wire, _ in used:
            await wire.answered.wait()
        return used[-1][1].last

    def batch(self, what: str) -> list[bytes]:
        match what:
            case "GET":
                path = f"/apis/node.k8s.io/v1/runtimeclasses/{CLASS}"
            case "LIST":
                path = f"/api/v1/namespaces/{LISTED}/pods"
            case _:
                self._count += CONNECTIONS
                query = "?dryRun=All" if what == "DRY" else ""
                path = f"/api/v1/namespaces/{NAMESPACE}/pods{query}"
                return [
                    request_bytes("POST", path, pod(f"p-{self._count - number}"))
                    for number in range(CONNECTIONS)
                ]
        return [request_bytes("GET", path)] * CONNECTIONS

    async def prepare(self) -> None:
        answers = [
            await self.ask(request_bytes("POST", "/apis/node.k8s.io/v1/runtimeclasses", {
                "metadata": {"name": CLASS}, "handler": "bench",
                "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
                "scheduling": {"nodeSelector": {"bench": "yes"}},
            })),
            await self.ask(
                request_bytes("POST", "/api/v1/namespaces", {"metadata": {"name": LISTED}})
            ),
        ]  # fmt: skip
        for namespace in (NAMESPACE, LISTED):
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
            answers.append(
                await self.ask(request_bytes("POST", path, {"metadata": {"name": "default"}}))
            )
        for number in range(500):
            path = f"/api/v1/namespaces/{LISTED}/pods"
            answers.append(await self.ask(request_bytes("POST", path, pod(f"listed-{number}"))))
        for answer in answers:
            if b" 201 " not in answer[:20]:
                raise SystemExit(answer.decode())

    async def measure(self, what: str, rounds: int) -> tuple[float, float]:
        """Microseconds for a request, the best of some rounds: of the loop's thread, by the clock.

        The clock's include the store's thread and the disk.
        """
        spent = elapsed = float("inf")
        for _ in range(rounds):
            batch = self.batch(what)
            began, began_s = time.thread_time(), time.perf_counter()
            await self.ask(*batch)
            spent = min(spent, time.thread_time() - began)
            elapsed = min(elapsed, time.perf_counter() - began_s)
        return spent / CONNECTIONS * 1e6, elapsed / CONNECTIONS * 1e6

    async def profile(self, what: str, rounds: int) -> None:
        profiler = cProfile.Profile()
        batches = [self.batch(what) for _ in range(rounds)]
        profiler.enable()
        for batch in batches:
            await self.ask(*batch)
        profiler.disable()
        print(f"\n{what}: {rounds * CONNECTIONS} requests")
        pstats.Stats(profiler).strip_dirs().sort_stats(SORT).print_stats(45)


async def run(options: argparse.Namespace, directory: Path) -> None:
    authority = Authority(directory / "pki", datetime.now(UTC))
    pair = authority.issue("server", Subject("kube-apiserver", hosts=("127.0.0.1",)))
    api_options = ApiOptions(
        signing_key=authority.signing_key(),
        issuer="https://kubernetes.default.svc",
        public_url="https://127.0.0.1:6443",
        service_network=ipaddress.IPv4Network("10.96.0.0/16"),
        node_tls=NodeTls(pair.certificate, pair.key, authority.pair.certificate),
        front_proxy=FrontProxy(
            certificate=pair.certificate,
            key=pair.key,
            authority=authority.pair.certificate,
            client_authority=authority.pair.certificate,
        ),
        static_tokens=(StaticToken("bench", "admin", ("system:masters",)),),
    )
    async with SqliteStore(directory / "state.db") as store:
        api = assemble(store, api_options, SystemClock())
        await api.cache.load()
        await write_service_network(api.objects, api_options.service_network, SystemClock())
        await bootstrap(api.objects, service_ip="10.96.0.1", secure_port=6443)
        api.ready.add("bootstrap")
        bench = Bench(api)
        await bench.prepare()
        for what in options.requests:
            await bench.measure(what, 20)
            spent, elapsed = await bench.measure(what, options.rounds)
            print(f"{what:5s} {spent:8.1f} µs of the loop's thread, {elapsed:8.1f} µs by the clock")
            if options.profile:
                await bench.profile(what, 30)
        api.worker.close()
        await api.evaluator.close()


def main() -> None:
    kinds = ["GET", "POST", "DRY", "LIST"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("requests", nargs="*", metavar="|".join(kinds))
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    options.requests = options.requests or kinds
    if unknown := set(options.requests) - set(kinds):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        uvloop.run(run(options, Path(directory)))


if __name__ == "__main__":
    main()
