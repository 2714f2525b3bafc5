"""A cluster's start, weight and speed: `.venv/bin/python -m bench.cluster [--pods N]`. Needs root.

Prints how long API server and cluster take to be ready, the resident memory of each process, and
how long a pod takes from its creation to Running as a client's watch sees it: one after the other
and 50 at once, beside the same sandbox, container and start made by bare CRI calls on the same
engine.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.classes import ensure_class
from bench.engine import Pods
from bench.own_api import process
from moorage.api.pods import Pod
from moorage.cluster import Choices, Cluster
from moorage.cluster.engine.paths import engine_paths
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import PODS
from moorage.wire.client.rest import Client
from moorage.wire.cri import CriClient

IMAGE = "moorage.local/busybox:1"
HANDLERS = ("runc", "crun")
COMMAND = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"]
AT_ONCE = 50


def api_ready_s(rounds: int = 5) -> float:
    """From the start of the process to its word that it is ready; the best of some rounds."""
    best = float("inf")
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(rounds):
            began = time.perf_counter()
            with process(Path(scratch)):
                best = min(best, time.perf_counter() - began)
    return best


class PodWatch:
    """When each pod was first Running."""

    def __init__(self, client: Client) -> None:
        self.informer = Informer(client, PODS, namespace="default")
        self.informer.add_handler(self._on_pod)
        self.running_s: dict[str, float] = {}
        self.changed = asyncio.Event()

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        name = (after or before).metadata.name  # type: ignore[union-attr]
        if after is not None and after.status.phase == "Running":
            self.running_s.setdefault(name, time.perf_counter())
        self.changed.set()

    async def until(self, condition: Any) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()


def pod(name: str, runtime_class: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "runtimeClassName": runtime_class,
            # With a grace period the object stays until the node has cleaned up, so that the end
            # of one pod is never measured as the start of the next.
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "app", "image": IMAGE, "command": COMMAND}],
        },
    }


async def start_one(client: Client, watch: PodWatch, name: str, handler: str) -> float:
    began = time.perf_counter()
    await client.create(PODS, pod(name, handler), "default")
    await watch.until(lambda: name in watch.running_s)
    return watch.running_s[name] - began


async def remove_all(client: Client, watch: PodWatch) -> None:
    await client.delete_collection(PODS, "default")
    await watch.until(lambda: len(watch.informer) == 0)


async def measure(cluster: Cluster, pods: int) -> None:
    endpoint = engine_paths(cluster.layout, cluster.settings).endpoint
    async with cluster.client("bench") as client, CriClient(endpoint) as cri:
        for handler in HANDLERS:
            await ensure_class(client, handler)
        watch = PodWatch(client)
        following = asyncio.ensure_future(watch.informer.run())
        await watch.informer.wait_synced()
        await asyncio.sleep(2)
        for handler in HANDLERS:
            bare = await Pods(cri, handler).one_by_one(pods)
            ours = []
            for number in range(pods):
                ours.append(await start_one(client, watch, f"one-{handler}-{number}", handler))
                await remove_all(client, watch)
            middle = statistics.median(ours) * 1000
            print(
                f"{handler}: create to Running p50 {middle:.0f} ms, "
                f"bare CRI calls p50 {bare:.0f} ms, {middle / bare:.2f} x"
            )
            began = time.perf_counter()
            names = [f"many-{handler}-{number}" for number in range(AT_ONCE)]
            await asyncio.gather(
                *(client.create(PODS, pod(name, handler), "default") for name in names)
            )
            await watch.until(lambda names=names: all(name in watch.running_s for name in names))
            last = max(watch.running_s[name] for name in names)
            print(f"{handler}: {AT_ONCE} at once, all Running after {last - began:.2f} s")
            await remove_all(client, watch)
        following.cancel()


async def show(cluster: Cluster, pods: int) -> None:
    """Start the cluster twice, print its figures, stop it."""
    await cluster.check_host()
    cluster.create()
    began = time.perf_counter()
    async with cluster:
        first = time.perf_counter() - began
        await cluster.stop(keeps_pods=True)
        cluster.create()
        began = time.perf_counter()
        await cluster.start()
        print(
            f"cluster with a Ready node after {first:.2f} s at its first start (images are "
            f"made), {time.perf_counter() - began:.2f} s at later ones"
        )
        total = 0
        for part in cluster.parts:
            total += part.memory_bytes or 0
            print(f"memory of {part.part}: {(part.memory_bytes or 0) / 2**20:.0f} MiB resident")
        print(f"memory of all: {total / 2**20:.0f} MiB resident")
        await measure(cluster, pods)
        log = cluster.layout.log("node").read_text()
        errors = len(re.findall(r" (?:error|warning) ", log))
        print(f"lines of warning in the node's log: {errors}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pods", type=int, default=15, help="how many one after the other")
    options = parser.parse_args()
    print(f"API server ready {api_ready_s():.2f} s after its process began")
    with tempfile.TemporaryDirectory(dir="/var/lib", prefix="moorage-bench-") as scratch:
        asyncio.run(show(Cluster(scratch, Choices(node_name="bench")), options.pods))


if __name__ == "__main__":
    main()
