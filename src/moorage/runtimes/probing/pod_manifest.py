"""Pod of a probe, as a manifest for any Kubernetes.

Pure. What a pod cannot express (devices, a limit of processes) is named instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from moorage.api.events import Event
from moorage.api.names import SUBDOMAIN_MAX
from moorage.api.pods import Pod
from moorage.api.runtime_group import PROBE_CLASS_PREFIX, PROBE_LABEL
from moorage.runtimes.probing.carrier import ENVIRONMENT, USER, WORKING_DIRECTORY, ProbeContainer

# Obstacles of probe pods: why one does not start or end, as far as the API says. Pure.

_STARTING = frozenset({"", "ContainerCreating", "PodInitializing"})


def obstacles(name: str, pod: Pod | None, events: Iterable[Event]) -> str:
    """Return where a pod waits, how its containers ended, and its last warning.

    `pod` is None where it is not known, `events` are those of its namespace. Returns the sentences
    after a colon and a space, to be put behind another sentence; empty without any.
    """
    reasons = [] if pod is None else list(_of_pod(pod))
    warnings = [
        event for event in events if event.type == "Warning" and event.involved_object.name == name
    ]
    if warnings:
        last = max(warnings, key=lambda event: event.last_timestamp or "")
        reasons.append(f"{last.reason}: {last.message}")
    return f": {'; '.join(dict.fromkeys(reasons))}" if reasons else ""


def _of_pod(pod: Pod) -> Iterator[str]:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            yield condition.message
    for status in pod.status.container_statuses:
        state = status.state.waiting or status.state.terminated
        if state is not None and state.reason not in _STARTING:
            yield f"{state.reason}: {state.message}".removesuffix(": ")


CONTAINER_NAME = "probe"
_DIGEST_DIGITS = 10
NODE_MAX = SUBDOMAIN_MAX - len(PROBE_CLASS_PREFIX) - _DIGEST_DIGITS - 1
"""Characters of a node that a class's name has room for beside a hash: 228."""
CUT = "x"
"""Stands before the end of a node, which may begin with a dot."""
_TOLERATE_ALL = {"operator": "Exists"}


class PodPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a probe's pod runs: its name, namespace and node, and the class of its handler.

    `class_name` is empty for the node's default handler, `image` for the probe's own.
    """

    name: str
    namespace: str
    owner: str
    node: str
    class_name: str
    image: str = ""


def not_expressible(probe: ProbeContainer) -> str:
    """Return the settings of a probe that no pod can ask for; empty if a pod can run it."""
    if probe.devices:
        return "a pod cannot name devices of its node"
    if probe.pids_limit:
        return "a pod cannot limit its processes"
    return ""


def pod_manifest(probe: ProbeContainer, place: PodPlace) -> dict[str, Any]:
    """Return the pod of a probe. It needs no service account and tolerates every taint."""
    spec: dict[str, Any] = {
        # By name rather than by the scheduler: a probe is of one node, whatever is free there.
        "nodeName": place.node,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": [_TOLERATE_ALL],
        "hostNetwork": probe.uses_host_network,
        "hostPID": probe.uses_host_pid,
        "hostIPC": probe.uses_host_ipc,
        "containers": [_container(probe, place.image or probe.image)],
        "volumes": [
            {"name": f"host-{number}", "hostPath": {"path": mount.host_path, "type": "Directory"}}
            for number, mount in enumerate(probe.mounts)
        ],
    }
    if place.class_name:
        spec["runtimeClassName"] = place.class_name
    if probe.shares_processes:
        spec["shareProcessNamespace"] = True
    if probe.has_user_namespace:
        spec["hostUsers"] = False
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": place.name,
            "namespace": place.namespace,
            "labels": {PROBE_LABEL: place.owner},
        },
        "spec": spec,
    }


def probe_pod_name(node: str, mark: str) -> str:
    """Return the name of a probe's pod: `mark` of 8 characters, then the node.

    Both stand at fixed places, so that a policy can read the node from the name alone.
    """
    return f"probe-{mark}.{node}"


def probe_class_name(node: str, handler: str) -> str:
    """Return the name of the class by which a node's probes reach a handler.

    Each node has its own, since it is removed after the probes. The node is what follows the first
    dot. A handler that makes the name longer than 253 characters is cut, and has a hash. A node of
    more than 228 characters is cut too, at its front, and the hash is of both.
    """
    kept = kept_node(node)
    name = f"{PROBE_CLASS_PREFIX}{handler}.{kept}"
    excess = len(name) - SUBDOMAIN_MAX
    if excess <= 0 and kept == node:
        return name
    hashed = handler if kept == node else f"{node}/{handler}"
    digest = hashlib.sha256(hashed.encode()).hexdigest()[:_DIGEST_DIGITS]
    head = handler[: max(0, len(handler) - excess - len(digest) - 1)]
    shortened = f"{head}-{digest}" if head else digest
    return f"{PROBE_CLASS_PREFIX}{shortened}.{kept}"


def kept_node(node: str) -> str:
    """Return the part of a node's name in a class's name: all of it, or its end behind CUT."""
    return node if len(node) <= NODE_MAX else f"{CUT}{node[len(CUT) - NODE_MAX :]}"


def limits(cpu_millis: int, memory_bytes: int) -> dict[str, str]:
    """Return limits as quantities; 0 stands for none."""
    values = {}
    if cpu_millis:
        values["cpu"] = f"{cpu_millis}m"
    if memory_bytes:
        values["memory"] = str(memory_bytes)
    return values


def _container(probe: ProbeContainer, image: str) -> dict[str, Any]:
    return {
        "name": CONTAINER_NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(probe.command),
        "workingDir": WORKING_DIRECTORY,
        "env": [{"name": name, "value": value} for name, value in ENVIRONMENT.items()],
        "tty": probe.has_terminal,
        "stdin": probe.has_terminal,
        "resources": _resources(probe),
        # A resize must not restart the container.
        "resizePolicy": [
            {"resourceName": name, "restartPolicy": "NotRequired"} for name in ("cpu", "memory")
        ],
        "securityContext": _security(probe),
        "volumeMounts": [
            {
                "name": f"host-{number}",
                "mountPath": mount.path,
                "readOnly": True,
                **({"recursiveReadOnly": "Enabled"} if mount.is_recursive else {}),
                **({"mountPropagation": "HostToContainer"} if mount.sees_later_mounts else {}),
            }
            for number, mount in enumerate(probe.mounts)
        ],
    }


def _resources(probe: ProbeContainer) -> dict[str, Any]:
    stated = limits(probe.cpu_millis, probe.memory_bytes)
    return {"limits": stated} if stated else {}


def _security(probe: ProbeContainer) -> dict[str, Any]:
    context: dict[str, Any] = {
        # Stated, since an image may name another user, who has no capabilities.
        "runAsUser": USER,
        "runAsGroup": USER,
        "runAsNonRoot": False,
        "privileged": probe.is_privileged,
        "readOnlyRootFilesystem": probe.has_read_only_root,
        "seccompProfile": {"type": probe.seccomp.value},
        "capabilities": {
            "add": list(probe.capabilities),
            "drop": list(probe.dropped_capabilities),
        },
    }
    context["allowPrivilegeEscalation"] = not probe.forbids_new_privileges
    profile = "RuntimeDefault" if probe.has_apparmor else "Unconfined"
    context["appArmorProfile"] = {"type": profile}
    if probe.selinux_level:
        context["seLinuxOptions"] = {"level": probe.selinux_level}
    return context
