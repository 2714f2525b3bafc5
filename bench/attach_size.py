"""Size of an attachment's parts: `.venv/bin/python -m bench.attach_size [--nodes N] [--pods N]`.

5,000 simulated nodes with ten handlers each, a profile of 99 features for each of them, and 100,000
running pods with a class, in the store of our own API server. Prints the resident memory of one
webhook and of the leading controllers once they know all that, with the highest since their start,
the processor time that this took, and the requests a second of all of them while nothing happens.
The goals: 80 and 400 MB, 1 request a second. Objects are written to the store while no server runs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.large_store import cpu_s, memory_mib
from bench.own_api import free_port, process
from moorage.admission.runtime_policies.sources import PROFILES, table_of
from moorage.api.runtime_group import feature_label, handler_label
from moorage.api.runtime_profiles import profile_name
from moorage.client.config import load_kubeconfig
from moorage.client.resources import (
    NODES,
    PODS,
    RUNTIME_CLASSES,
    RUNTIME_PROFILES,
    SERVICE_ACCOUNTS,
)
from moorage.client.rest import Client
from moorage.cluster.certificates import Authority, Subject
from moorage.cluster.layout import Layout
from moorage.custom_resources import install_definitions
from moorage.registry.kinds.node import NODE
from moorage.registry.stored import from_value, to_value
from moorage.runtimeclass.features import FEATURES, is_labelled
from moorage.storage import SqliteStore

HANDLERS = tuple(f"handler-{number}" for number in range(10))
CLASSES = 100
_TEMPLATE = "template"
_AT_ONCE = 256
_READY_S = 300.0
_REST_S = 60.0
_REQUESTS = re.compile(r"^apiserver_request_total\{[^}]*\} (\d+)", re.MULTILINE)


def labels(name: str, number: int) -> dict[str, str]:
    """The labels of a node: those of its system and cloud, of its handlers and their features."""
    made = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": f"type-{number % 7}",
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
        "pool": f"pool-{number % 20}",
    }
    for handler in HANDLERS:
        made[handler_label(handler)] = "true"
        for feature in filter(is_labelled, FEATURES):
            if feature != "gpu" or number % 20:
                made[feature_label(handler, feature)] = "true"
    return made


def features(number: int) -> list[dict[str, str]]:
    """What probes found on a node; one of twenty is unlike the others."""
    return [
        {
            "name": feature,
            "state": "Unsupported" if feature == "gpu" and number % 20 == 0 else "Supported",
            "message": f"the probe of {feature} ended with status 0",
        }
        for feature in FEATURES
    ]


async def write_templates(layout: Layout) -> None:
    """Write one object of each kind by the API, to be copied."""
    async with Client(load_kubeconfig(layout.kubeconfig), user_agent="bench") as client:
        await install_definitions(client)
        await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, "default")
        for number in range(CLASSES):
            handler = HANDLERS[number % len(HANDLERS)]
            body = {"metadata": {"name": f"class-{number}"}, "handler": handler}
            await client.create(RUNTIME_CLASSES, body)
        await client.create(NODES, {"metadata": {"name": _TEMPLATE, "labels": labels("x", 1)}})
        status: dict[str, Any] = {
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "runtimeHandlers": [{"name": handler} for handler in HANDLERS],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        }
        await client.patch(NODES, _TEMPLATE, {"status": status}, subresource="status")
        spec: dict[str, Any] = {"nodeName": _TEMPLATE, "handler": HANDLERS[0]}
        name = profile_name(_TEMPLATE, HANDLERS[0])
        await client.create(RUNTIME_PROFILES, {"metadata": {"name": name}, "spec": spec})
        working = {
            "type": "Working", "status": "True", "reason": "ProbeSucceeded", "message": "it ran",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        status = {"isolation": "shared-kernel", "features": features(1), "conditions": [working]}
        await client.patch(RUNTIME_PROFILES, name, {"status": status}, subresource="status")
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "1",
                 "controller": True}  # fmt: skip
        containers = [{"name": "app", "image": "registry.example.com/app:1"}]
        spec = {"runtimeClassName": "class-0", "containers": containers, "nodeName": _TEMPLATE}
        metadata = {"name": _TEMPLATE, "labels": {"app": "a"}, "ownerReferences": [owner]}
        await client.create(PODS, {"metadata": metadata, "spec": spec}, "default")
        times = {"status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        conditions = [{"type": type_, **times} for type_ in ("PodScheduled", "Initialized",
                      "ContainersReady", "Ready")]  # fmt: skip
        status = {"phase": "Running", "podIP": "10.0.0.1", "conditions": conditions}
        await client.patch(PODS, _TEMPLATE, {"status": status}, "default", subresource="status")


async def seed(layout: Layout, nodes: int, pods: int) -> None:
    """Copy the templates into the store."""
    async with SqliteStore(layout.database, mark=layout.store_mark) as store:

        async def template(key: str) -> dict[str, Any]:
            page = await store.range(key)
            return dict(from_value(page.entries[0].value))

        node_table, profile_table = NODE.prefix(""), table_of(PROFILES)
        node = await template(f"{node_table}{_TEMPLATE}")
        profile = await template(f"{profile_table}{profile_name(_TEMPLATE, HANDLERS[0])}")
        pod = await template(f"pods/default/{_TEMPLATE}")

        async def put(key: str, obj: dict[str, Any], name: str, **changed: Any) -> None:
            metadata = {**obj["metadata"], "name": name, "uid": str(uuid.uuid4())}
            metadata |= changed.pop("metadata", {})
            await store.put(key + name, to_value({**obj, "metadata": metadata, **changed}), 0)

        async def write_nodes(numbers: range) -> None:
            for number in numbers:
                name = f"node-{number:05}"
                await put(node_table, node, name, metadata={"labels": labels(name, number)})
                status = {**profile["status"], "features": features(number)}
                for handler in HANDLERS:
                    spec = {"nodeName": name, "handler": handler}
                    await put(
                        profile_table, profile, profile_name(name, handler), spec=spec,
                        status=status,
                    )  # fmt: skip

        async def write_pods(numbers: range) -> None:
            for number in numbers:
                spec = {**pod["spec"], "runtimeClassName": f"class-{number % CLASSES}",
                        "nodeName": f"node-{number % nodes:05}"}  # fmt: skip
                owner = {**pod["metadata"]["ownerReferences"][0], "uid": str(number // 10)}
                metadata = {"ownerReferences": [owner]}
                await put("pods/default/", pod, f"pod-{number:06}", spec=spec, metadata=metadata)

        async with asyncio.TaskGroup() as tasks:
            for first in range(_AT_ONCE):
                tasks.create_task(write_nodes(range(first, nodes, _AT_ONCE)))
                tasks.create_task(write_pods(range(first, pods, _AT_ONCE)))


@contextlib.contextmanager
def part(layout: Layout, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A part that runs alone, as the administrator."""
    command = [sys.executable, "-m", "moorage.cli", *arguments, "--log-level", "error"]
    running = subprocess.Popen([*command, "--kubeconfig", str(layout.kubeconfig)])
    try:
        yield running
    finally:
        running.terminate()
        running.wait()


def wait_synced(port: int) -> None:
    """Wait until a webhook knows the cluster. Raises SystemExit."""
    context = ssl._create_unverified_context()
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            url = f"https://127.0.0.1:{port}/readyz"
            with urllib.request.urlopen(url, context=context, timeout=5):
                return
        time.sleep(0.5)
    raise SystemExit("the webhook does not know the cluster in time")


def wait_calm(pid: int) -> None:
    """Wait until a process has done nothing for some seconds. Raises SystemExit."""
    deadline, before, calm = time.monotonic() + _READY_S, -1.0, 0
    while calm < 5:
        if time.monotonic() > deadline:
            raise SystemExit("the part does not come to rest")
        time.sleep(1.0)
        spent = cpu_s(pid)
        calm = calm + 1 if spent - before < 0.05 and spent > 0.5 else 0
        before = spent


async def requests(layout: Layout) -> int:
    """The requests that the API server has answered."""
    async with Client(load_kubeconfig(layout.kubeconfig), user_agent="bench") as client:
        text = (await client.request("GET", "/metrics", accept="*/*")).decode()
    return sum(map(int, _REQUESTS.findall(text)))


def report(what: str, pid: int) -> None:
    print(
        f"{what:24s} {memory_mib(pid, 'VmRSS') * 1.048576:6.0f} MB, at most "
        f"{memory_mib(pid, 'VmHWM') * 1.048576:6.0f} MB, {cpu_s(pid):6.1f} s of CPU"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="placing-") as scratch:
        layout = Layout(Path(scratch))
        with process(layout.root):
            asyncio.run(write_templates(layout))
        asyncio.run(seed(layout, options.nodes, options.pods))
        authority = Authority(Path(scratch) / "webhook", datetime.now(UTC))
        pair = authority.issue("webhook", Subject("webhook", hosts=("127.0.0.1",)))
        ports = [free_port() for _ in range(2)]
        hooks = [
            ("webhook", "--tls-cert-file", str(pair.certificate), "--tls-private-key-file",
             str(pair.key), "--port", str(port), "--place-by-handler")
            for port in ports
        ]  # fmt: skip
        controllers = ("controllers", "--runtimes-only", "--leader-elect", "--create-classes")
        with (
            process(layout.root, _READY_S),
            part(layout, *hooks[0]) as webhook,
            part(layout, *hooks[1]) as other_webhook,
            part(layout, *controllers) as leader,
            part(layout, *controllers) as standby,
        ):
            running = (webhook, other_webhook, leader, standby)
            for port in ports:
                wait_synced(port)
            for one in running:
                wait_calm(one.pid)
            report("webhook", webhook.pid)
            for one in sorted((leader, standby), key=lambda one: -memory_mib(one.pid, "VmRSS")):
                report("controllers", one.pid)
            before = asyncio.run(requests(layout))
            time.sleep(_REST_S)
            rate = (asyncio.run(requests(layout)) - before - 1) / _REST_S
            print(f"{'all four at rest':24s} {rate:6.2f} requests/s")


if __name__ == "__main__":
    main()
