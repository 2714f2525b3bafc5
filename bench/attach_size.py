"""Size of an attachment: `.venv/bin/python -m bench.attach_size [--part webhook|controllers]`.

5,000 nodes with ten handlers each, a profile of 99 features for each of them, and 100,000 running
pods with a class, served by `bench.generated_api` in place of a real API server. Prints, of the
webhook and the controllers once they know all that, the resident memory with the highest since
their start, the processor time that this took, the requests a minute at rest by kind, and the time
from the profile of a node's new handler to the release of the pod that waits for it. The goals: 80
and 400 MB, 2 s, and less than 1 request a second in all. The parts run with the image's
environment.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from bench import generated_objects as made
from bench.large_store import cpu_s, memory_mib
from bench.own_api import free_port
from moorage.cluster.access.identities import Authority, Subject

_READY_S = 900.0
_REST_S = 60.0
_MIB = 1.048576
_NODE = 7
"""Number of the first node that gets a handler."""


class Api:
    """The generated API server, in a process of its own."""

    def __init__(self, scratch: Path, nodes: int, pods: int) -> None:
        self._authority = Authority(scratch / "api", datetime.now(UTC))
        self._pair = self._authority.issue("api", Subject("api", hosts=("127.0.0.1",)))
        self._port = free_port()
        self.kubeconfig = scratch / "kubeconfig"
        self._numbers = ("--nodes", str(nodes), "--pods", str(pods))
        self._write_kubeconfig()

    @contextlib.contextmanager
    def process(self) -> Iterator[None]:
        command = [sys.executable, "-m", "bench.generated_api", *self._numbers]
        command += ["--port", str(self._port), "--certificate", str(self._pair.certificate)]
        serving = subprocess.Popen([*command, "--key", str(self._pair.key)])
        try:
            wait_answer(f"https://127.0.0.1:{self._port}/readyz")
            yield
        finally:
            serving.terminate()
            serving.wait()

    def call(self, path: str, body: Any = None) -> Any:
        data = None if body is None else msgspec.json.encode(body)
        request = urllib.request.Request(f"https://127.0.0.1:{self._port}{path}", data)
        with urllib.request.urlopen(request, context=_unverified(), timeout=60) as answer:
            return msgspec.json.decode(answer.read())

    def requests(self) -> Counter[str]:
        return Counter(self.call("/bench/counts")["requests"])

    def _write_kubeconfig(self) -> None:
        certificate = base64.b64encode(self._authority.pair.certificate.read_bytes()).decode()
        server = f"https://127.0.0.1:{self._port}"
        self.kubeconfig.write_bytes(
            msgspec.json.encode(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "bench",
                    "clusters": [
                        {"name": "bench", "cluster": {
                            "server": server, "certificate-authority-data": certificate}}
                    ],
                    "users": [{"name": "bench", "user": {"token": "bench"}}],
                    "contexts": [{"name": "bench", "context": {
                        "cluster": "bench", "user": "bench", "namespace": "moorage-system"}}],
                }
            )
        )  # fmt: skip


def _unverified() -> ssl.SSLContext:
    return ssl._create_unverified_context()


@contextlib.contextmanager
def part(api: Api, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A part that runs alone, as in its pod."""
    command = [sys.executable, "-m", "moorage.cli", *arguments, "--log-level", "error"]
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    running = subprocess.Popen([*command, "--kubeconfig", str(api.kubeconfig)], env=environment)
    try:
        yield running
    finally:
        running.terminate()
        running.wait()


def wait_answer(url: str) -> None:
    """Wait until a server answers with status 200. Raises SystemExit."""
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(url, context=_unverified(), timeout=5),
        ):
            return
        time.sleep(0.5)
    raise SystemExit(f"{url} is not ready in time")


def wait_calm(pid: int) -> None:
    """Wait until a process has done nothing for some seconds. Raises SystemExit."""
    deadline, before, calm = time.monotonic() + _READY_S, -1.0, 0
    while calm < 10:
        if time.monotonic() > deadline:
            raise SystemExit("the part does not come to rest")
        time.sleep(1.0)
        spent = cpu_s(pid)
        calm = calm + 1 if spent - before < 0.05 and spent > 0.5 else 0
        before = spent


def report(what: str, pid: int) -> None:
    print(
        f"{what:24s} {memory_mib(pid, 'VmRSS') * _MIB:6.0f} MB, at most "
        f"{memory_mib(pid, 'VmHWM') * _MIB:6.0f} MB, {cpu_s(pid):6.1f} s of CPU",
        flush=True,
    )


def report_rest(api: Api, *parts: subprocess.Popen[bytes]) -> None:
    """Print the requests and the processor time of a minute without news."""
    before, spent = api.requests(), [cpu_s(one.pid) for one in parts]
    time.sleep(_REST_S)
    counts = api.requests() - before
    print(f"{'requests at rest':24s} {counts.total() / _REST_S:6.2f} /s: {dict(counts)}")
    shares = [(cpu_s(one.pid) - was) / _REST_S for one, was in zip(parts, spent, strict=True)]
    print(f"{'cores at rest':24s} {', '.join(f'{share:.2%}' for share in shares)}", flush=True)


@contextlib.contextmanager
def webhook(api: Api, scratch: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A webhook that knows the cluster, and its port."""
    authority = Authority(scratch / "webhook", datetime.now(UTC))
    pair = authority.issue("webhook", Subject("webhook", hosts=("127.0.0.1",)))
    port = free_port()
    with part(
        api, "webhook", "--tls-cert-file", str(pair.certificate), "--tls-private-key-file",
        str(pair.key), "--port", str(port), "--place-by-handler",
    ) as running:  # fmt: skip
        wait_answer(f"https://127.0.0.1:{port}/readyz")
        wait_calm(running.pid)
        yield running, port


def measure_webhook(api: Api, scratch: Path) -> None:
    with webhook(api, scratch) as (running, _):
        report("webhook", running.pid)
        report_rest(api, running)


def measure_controllers(api: Api) -> None:
    arguments = ("controllers", "--runtimes-only", "--leader-elect", "--create-classes")
    with part(api, *arguments) as leader:
        wait_calm(leader.pid)
        with part(api, *arguments) as standby:
            wait_calm(leader.pid)
            report("controllers, leading", leader.pid)
            report("controllers, standing by", standby.pid)
            report_rest(api, leader, standby)
            report_reaction(api)
            wait_calm(leader.pid)
            report("controllers, leading", leader.pid)


def report_reaction(api: Api) -> None:
    """Give one node after another a handler that a held pod waits for.

    Prints how long after the handler's profile each pod was released.
    """
    times = sorted(_reaction_s(api, change) for change in range(made.CHANGES))
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
    print(
        f"{'a gate after its profile':24s} {p50:6.2f} s p50, {p99:.2f} s p99 of {len(times)}",
        flush=True,
    )


def _reaction_s(api: Api, change: int) -> float:
    number = _NODE + change
    profile = made.new_profile(number, change)
    changed = api.call(
        "/bench/event", {"plural": "runtimeprofiles", "type": "ADDED", "object": profile}
    )
    gained = made.node_with_new_handler(number, change)
    api.call("/bench/event", {"plural": "nodes", "type": "MODIFIED", "object": gained})
    path = f"PATCH /api/v1/namespaces/default/pods/held-{change}"
    deadline = time.monotonic() + _READY_S
    while (released := api.call("/bench/counts")["writes"].get(path)) is None:
        if time.monotonic() > deadline:
            raise SystemExit(f"the pod held-{change} is not released")
        time.sleep(0.05)
    return float(released - changed["at"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--part", choices=("webhook", "controllers"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="attach-size-") as directory:
        scratch = Path(directory)
        api = Api(scratch, options.nodes, options.pods)
        with api.process():
            if options.part != "controllers":
                measure_webhook(api, scratch)
            if options.part != "webhook":
                measure_controllers(api)


if __name__ == "__main__":
    main()
