"""A server with many pods: `.venv/bin/python -m bench.large_store [--pods N]`.

Prints how long the API server takes to be ready, empty and with 30,000 pods in its store; its
resident memory with them, before and after a full LIST in each form, and the peak during each; and
the time that deleting them in one request takes. The pods are written to the store while no server
runs, each as large as one that was posted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import ssl
import tempfile
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

from bench.api import CLASS, Server, prepare
from bench.own_api import administrator, process
from moorage.apiserver.registry.stored import from_value, to_value
from moorage.apiserver.storage import SqliteStore
from moorage.cluster.layout import Layout

NAMESPACE = "default"
_TEMPLATE = "template"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_AT_ONCE = 256
_FORMS = {
    "JSON": "application/json",
    "JSON, compressed": "application/json",
    "protobuf": "application/vnd.kubernetes.protobuf",
    "Table": "application/json;as=Table;g=meta.k8s.io;v=v1",
    "metadata": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
}


def memory_mib(pid: int, line: str) -> float:
    match = re.search(rf"{line}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match, f"/proc/{pid}/status has no {line}"
    return int(match[1]) / 1024


def cpu_s(pid: int) -> float:
    """Processor time of a process: on a busy machine it says more than the clock."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


async def seed(layout: Layout, count: int) -> None:
    """Write pods to the store that are copies of the template, under names of their own."""
    async with SqliteStore(layout.database, mark=layout.store_mark) as store:
        key = f"pods/{NAMESPACE}/{_TEMPLATE}"
        page = await store.range(key)
        pod = from_value(page.entries[0].value)

        async def write(numbers: range) -> None:
            for number in numbers:
                name = f"pod-{number:06d}"
                pod["metadata"] |= {"name": name, "uid": str(uuid.uuid4())}
                await store.put(f"pods/{NAMESPACE}/{name}", to_value(pod), 0)

        async with asyncio.TaskGroup() as tasks:
            for first in range(_AT_ONCE):
                tasks.create_task(write(range(first, count, _AT_ONCE)))


def read_all(server: Server, path: str, method: str = "GET", **headers: str) -> int:
    """Read an answer in pieces. Returns its bytes as they were sent."""
    context = ssl._create_unverified_context()
    request = urllib.request.Request(
        server.url + path,
        method=method,
        headers={"Authorization": f"Bearer {server.token}"}
        | {name.replace("_", "-"): value for name, value in headers.items()},
    )
    size = 0
    with urllib.request.urlopen(request, context=context, timeout=300) as answer:
        while piece := answer.read(1 << 20):
            size += len(piece)
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pods", type=int, default=30_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        layout = Layout(Path(scratch))
        with process(layout.root):
            server = Server(*asyncio.run(administrator(layout)))
            prepare(server, listed=0)
            server.call("POST", _PODS, _pod())
        measure_ready(layout, "empty")
        asyncio.run(seed(layout, options.pods))
        measure_ready(layout, f"{options.pods} pods")
        with process(layout.root) as running:
            measure(server, running.pid)


def _pod() -> dict[str, Any]:
    return {
        "metadata": {"name": _TEMPLATE},
        "spec": {
            "runtimeClassName": CLASS,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "app",
                    "image": "app:1",
                    "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
                }
            ],
        },
    }


def measure_ready(layout: Layout, what: str, rounds: int = 5) -> None:
    best, spent = float("inf"), float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        with process(layout.root) as running:
            best = min(best, time.perf_counter() - began)
            spent = min(spent, cpu_s(running.pid))
    print(f"ready, {what:17s} {best:22.2f} s, {spent:5.2f} s of CPU")


def measure(server: Server, pid: int) -> None:
    print(f"resident after the start     {memory_mib(pid, 'VmRSS'):8.0f} MiB")
    for name, accept in _FORMS.items():
        encoding = {"Accept_Encoding": "gzip"} if "compressed" in name else {}
        measure_call(server, pid, f"LIST in {name}", "GET", Accept=accept, **encoding)
    measure_call(server, pid, "deletecollection", "DELETE")


def measure_call(server: Server, pid: int, what: str, method: str, **headers: str) -> None:
    forget_peak(pid)
    began, before_s = time.perf_counter(), cpu_s(pid)
    size = read_all(server, _PODS, method, **headers)
    spent_s, cpu = time.perf_counter() - began, cpu_s(pid) - before_s
    print(
        f"{what:25s} {size / 2**20:6.1f} MiB {spent_s:6.2f} s, {cpu:5.2f} s of CPU, peak "
        f"{memory_mib(pid, 'VmHWM'):4.0f} MiB, then {memory_mib(pid, 'VmRSS'):4.0f} MiB"
    )


if __name__ == "__main__":
    main()
