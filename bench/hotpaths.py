"""What single steps of the hot paths cost: `.venv/bin/python -m bench.hotpaths`.

Each line is the best of some rounds, in microseconds a pod (or a watcher), on one core: decoding a
request body, defaults, rules, field ownership, RuntimeClass admission with the resolution of its
handler, runtime policies where there are none, encoding in JSON and protobuf, the fan-out of one
change to many watchers, a container's `config.json`, and, as root, the overlay mount of a root file
system with eight layers.
"""

from __future__ import annotations

import asyncio
import copy
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from moorage.api.clock import SystemClock
from moorage.api.runtime_group import Overhead, RuntimeClass, Scheduling
from moorage.apiserver.admission.chain import CREATE
from moorage.apiserver.admission.runtime_policies import RuntimePolicyAdmission
from moorage.apiserver.admission.runtime_policies.sources import RuntimeFacts
from moorage.apiserver.registry.codec import Codec, Media
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.kinds.pod import POD, default_pod
from moorage.apiserver.registry.kinds.pod.validation import validate_pod
from moorage.apiserver.registry.ownership import Ownership
from moorage.apiserver.registry.request import Attributes, Request, User
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.registry.schema import load_schema
from moorage.apiserver.registry.stored import Stored, StoredFactory
from moorage.apiserver.storage import SqliteStore, WatchCache
from moorage.engine.images.layers import tree_of
from moorage.engine.images.snapshotter import Overlayfs
from moorage.engine.oci import (
    ContainerRequest,
    Findings,
    HandlerTraits,
    HostFacts,
    Identity,
    ImageDefaults,
    SandboxContext,
    SpecWriter,
)
from moorage.linux.mounts import unmount
from moorage.runtimeclass import PodFields, admit, resolve_handler
from moorage.wire.cri import pb

ROUNDS = 7
TIMES = 2000
WATCHERS = 1000

_PROBE = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 5}
_CONTAINER = {
    "name": "app",
    "image": "registry.example/app:1",
    "command": ["/app", "--serve"],
    "env": [{"name": f"VARIABLE_{number}", "value": f"value {number}"} for number in range(8)],
    "ports": [{"containerPort": 8080, "name": "http"}],
    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}],
}
POD_BODY = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web", "tier": "front"}},
    "spec": {
        "runtimeClassName": "sandboxed",
        "containers": [_CONTAINER],
        "volumes": [{"name": "config", "configMap": {"name": "web"}}],
    },
}
CLASS = RuntimeClass(
    handler="gvisor",
    overhead=Overhead(pod_fixed={"cpu": "10m", "memory": "16Mi"}),
    scheduling=Scheduling(node_selector={"tier": "sandbox"}),
)


def best_us(step: Callable[[], Any], times: int = TIMES) -> float:
    """Microseconds of one call, in the best of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(times):
            step()
        best = min(best, time.perf_counter() - began)
    return best / times * 1e6


def report(name: str, microseconds: float) -> None:
    print(f"{name:44s} {microseconds:8.1f} µs")


def pod_steps() -> None:
    body = msgspec.json.encode(POD_BODY)
    codec = Codec(load_schema())
    served = POD.storage
    decoded = codec.decode(POD, served, body, Media.JSON).obj
    print(f"a pod of {len(body)} bytes")
    report("decode and check types", best_us(lambda: codec.decode(POD, served, body, Media.JSON)))
    copying = best_us(lambda: copy.deepcopy(decoded))
    with_copy = best_us(lambda: default_pod(copy.deepcopy(decoded)))
    report("defaults", with_copy - copying)
    defaulted = copy.deepcopy(decoded)
    default_pod(defaulted)
    report("rules", best_us(lambda: validate_pod(defaulted)))
    ownership = Ownership(codec, SystemClock())
    report("field ownership", _ownership_us(ownership, defaulted, copying))
    report("encode", best_us(lambda: msgspec.json.encode(defaulted)))
    report("encode in protobuf", best_us(lambda: codec.to_message(POD.storage.type, defaulted)))


def _ownership_us(ownership: Ownership, pod: dict[str, Any], copying: float) -> float:
    request = Request(user=User(name="bench"), field_manager="bench")

    def step() -> None:
        ownership.on_create(request, POD, POD.storage, copy.deepcopy(pod))

    return best_us(step) - copying


def class_steps() -> None:
    pod = PodFields(node_selector={"disk": "fast"})
    classes = {"sandboxed": CLASS}
    report("RuntimeClass: admit and resolve", best_us(lambda: _admitted(pod, classes)))


async def policy_steps() -> None:
    """Report what the plugin of runtime policies costs a pod where there is none to apply."""
    with tempfile.TemporaryDirectory() as directory:
        async with SqliteStore(Path(directory) / "policies.db") as store:
            cache: WatchCache[Stored] = WatchCache(store, StoredFactory(STORED_KINDS))
            await cache.load()
            plugin = RuntimePolicyAdmission(RuntimeFacts(cache, ResourceMap(STORED_KINDS)))
            pod = copy.deepcopy(POD_BODY)
            attributes = Attributes(
                request=Request(user=User(name="bench")), operation=CREATE, kind=POD,
                served=POD.storage, namespace="default", name="web", obj=pod,
            )  # fmt: skip

            def step() -> None:
                plugin.mutate(attributes)
                plugin.validate(attributes)

            report("runtime policies, with none to apply", best_us(step))


def _admitted(pod: PodFields, classes: dict[str, RuntimeClass]) -> str:
    admit(pod, classes["sandboxed"])
    return resolve_handler("sandboxed", classes.get)


class _Item:
    """An object of the watch cache, as small as can be."""

    def __init__(self, key: str, revision: int, value: bytes) -> None:
        self.key, self.revision, self.value = key, revision, value
        self.size = len(value)


async def fan_out_us() -> float:
    """What one more watcher costs a change, from the commit to its queue."""
    with tempfile.TemporaryDirectory() as directory:
        async with SqliteStore(Path(directory) / "fan.db") as store:
            cache: WatchCache[_Item] = WatchCache(store, _Item)
            await cache.load()

            async def changes() -> float:
                began = time.perf_counter()
                for number in range(100):
                    await store.put(f"pods/n/{time.perf_counter_ns()}-{number}", b"{}", 0)
                return time.perf_counter() - began

            alone = min([await changes() for _ in range(3)])
            for _ in range(WATCHERS):
                cache.watch("pods/", cache.revision, lambda event: event)
            crowded = min([await changes() for _ in range(3)])
    return (crowded - alone) / 100 / WATCHERS * 1e6


def spec_us() -> float:
    """An ordinary container's `config.json`: 30 variables, six mounts, seccomp, limits."""
    config = pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name="app"),
        command=["/app"],
        envs=[pb.KeyValue(key=f"SERVICE_{number}", value=b"10.0.0.1") for number in range(30)],
        mounts=[pb.Mount(container_path=f"/m/{letter}", host_path="/tmp") for letter in "abcdef"],
        linux=pb.LinuxContainerConfig(
            security_context=pb.LinuxContainerSecurityContext(
                namespace_options=pb.NamespaceOption(pid=pb.CONTAINER),
                seccomp=pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault),
                masked_paths=[f"/proc/{letter}" for letter in "abcdefghijkl"],
            ),
            resources=pb.LinuxContainerResources(cpu_shares=102, memory_limit_in_bytes=1 << 26),
        ),
    )
    sandbox = pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name="web", uid="u-1", namespace="shop"),
        linux=pb.LinuxPodSandboxConfig(cgroup_parent="/kubepods/podu-1"),
    )
    request = ContainerRequest(
        id="c0" * 32,
        config=config,
        sandbox=SandboxContext(
            id="5a" * 32, config=sandbox, hostname="web", netns="/run/pins/net",
            ipcns="/run/pins/ipc", utsns="/run/pins/uts",
        ),
        image=ImageDefaults(),
        identity=Identity(0, 0, (0,)),
        rootfs=Path("/rootfs"),
        handler=HandlerTraits(name="crun"),
    )  # fmt: skip
    findings = Findings(sources={"/tmp": "/tmp"})
    writer = SpecWriter(HostFacts(kernel=(6, 1), machine="x86_64"))
    return best_us(lambda: writer.container(request, findings), times=50)


def mount_us() -> float:
    """The overlay mount of eight layers, the quickest of thirty."""
    best = float("inf")
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as directory:
        layers = [Path(directory, f"layer{number}") for number in range(8)]
        target = Path(directory, "root")
        for path in (*(tree_of(layer) for layer in layers), target):
            path.mkdir(parents=True)
        snapshotter = Overlayfs(Path(directory))
        for number in range(30):
            home = Path(directory, f"home{number}")
            home.mkdir()
            began = time.perf_counter()
            snapshotter.mount(home, layers, target, None)
            best = min(best, time.perf_counter() - began)
            unmount(target)
    return best * 1e6


def main() -> None:
    pod_steps()
    class_steps()
    asyncio.run(policy_steps())
    report(f"a change to each of {WATCHERS} watchers", asyncio.run(fan_out_us()))
    report("a container's config.json", spec_us())
    if os.geteuid() == 0:
        report("overlay mount of eight layers", mount_us())
    else:
        print("overlay mount: not measured, needs root")


if __name__ == "__main__":
    main()
