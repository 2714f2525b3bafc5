"""A pod's start step by step: `.venv/bin/python -m bench.podstart [--pods N]`. Needs root.

A cluster is started with the engine's calls in its log. Pods are created one after the other; what
a client's watch sees and what the engine logs are put in one line of time. Prints the median of
each step in milliseconds, for each handler. The log has milliseconds, so steps are that exact.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from bench.classes import ensure_class
from bench.cluster import HANDLERS, pod
from moorage.api.pods import Pod
from moorage.cluster import Choices, Cluster
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import PODS
from moorage.wire.client.rest import Client

_ANSWERED = re.compile(
    r"^(?P<at>\S+) debug engine\.service\.server answered "
    r"call=(?P<call>RunPodSandbox|CreateContainer|StartContainer) took_ms=(?P<took>[\d.]+)$",
    re.MULTILINE,
)
_STEPS = (
    ("POST sent", "answered: committed"),
    ("answered: committed", "binding seen"),
    ("binding seen", "RunPodSandbox called"),
    ("RunPodSandbox called", "RunPodSandbox answered"),
    ("RunPodSandbox answered", "CreateContainer called"),
    ("CreateContainer called", "CreateContainer answered"),
    ("CreateContainer answered", "StartContainer called"),
    ("StartContainer called", "StartContainer answered"),
    ("StartContainer answered", "Running seen"),
    ("POST sent", "Running seen"),
)
_PAUSE_S = 0.4


@dataclass
class Start:
    """When what happened, in seconds of the wall clock."""

    moments: dict[str, float] = field(default_factory=dict)

    def note(self, what: str) -> None:
        self.moments.setdefault(what, time.time())


class Starts:
    """The starts that a watch sees, by the pod's name."""

    def __init__(self, client: Client) -> None:
        self.informer = Informer(client, PODS, namespace="default")
        self.informer.add_handler(self._on_pod)
        self.by_name: dict[str, Start] = {}
        self.changed = asyncio.Event()

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        del before
        self.changed.set()
        if after is None:
            return
        start = self.by_name.setdefault(after.metadata.name, Start())
        if after.spec.node_name:
            start.note("binding seen")
        if after.status.phase == "Running":
            start.note("Running seen")

    async def until_running(self, name: str) -> None:
        while "Running seen" not in self.by_name[name].moments:
            self.changed.clear()
            await self.changed.wait()

    async def until_gone(self) -> None:
        while len(self.informer):
            self.changed.clear()
            await self.changed.wait()


async def make(cluster: Cluster, handler: str, pods: int) -> list[Start]:
    """So many pods under a handler, one after the other."""
    async with cluster.client("bench") as client:
        await ensure_class(client, handler)
        starts = Starts(client)
        following = asyncio.ensure_future(starts.informer.run())
        await starts.informer.wait_synced()
        await asyncio.sleep(2)
        for number in range(pods):
            name = f"{handler}-{number}"
            start = starts.by_name[name] = Start()
            start.note("POST sent")
            await client.create(PODS, pod(name, handler), "default")
            start.note("answered: committed")
            await starts.until_running(name)
            await client.delete_collection(PODS, "default")
            await starts.until_gone()
            await asyncio.sleep(_PAUSE_S)
        following.cancel()
        return [starts.by_name[f"{handler}-{number}"] for number in range(pods)]


def calls(log: str) -> Iterator[tuple[str, float, float]]:
    """The calls in an engine's log: which, when it came, when it was answered."""
    for match in _ANSWERED.finditer(log):
        answered = datetime.fromisoformat(match["at"]).timestamp()
        yield match["call"], answered - float(match["took"]) / 1000, answered


def join(starts: list[Start], log: str) -> None:
    """Put each call to the start in whose time it was."""
    for call, called, answered in calls(log):
        for start in starts:
            moments = start.moments
            if moments["POST sent"] <= called <= moments["Running seen"]:
                moments[f"{call} called"], moments[f"{call} answered"] = called, answered


def show(handler: str, starts: list[Start]) -> None:
    for begin, end in _STEPS:
        took = [
            1000 * (start.moments[end] - start.moments[begin])
            for start in starts
            if begin in start.moments and end in start.moments
        ]
        middle = f"{statistics.median(took):6.1f}" if took else "     -"
        print(f"{handler:5} {middle} ms  {begin} → {end}")


async def measure(cluster: Cluster, pods: int) -> None:
    """Start the cluster, print each handler's steps, stop the cluster."""
    async with cluster:
        for handler in HANDLERS:
            starts = await make(cluster, handler, pods)
            join(starts, cluster.layout.log("engine").read_text())
            show(handler, starts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pods", type=int, default=20, help="how many for each handler")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/lib", prefix="moorage-bench-") as scratch:
        choices = Choices(node_name="bench", log_level="debug")
        asyncio.run(measure(Cluster(scratch, choices), options.pods))


if __name__ == "__main__":
    main()
