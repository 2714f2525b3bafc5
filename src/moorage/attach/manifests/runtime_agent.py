"""Runtime agent among the objects of an attachment: its DaemonSet, rights and namespace of probes.

Every privilege has its reason beside it; docs/runtime-agent.md has the same list for readers.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from moorage.api.meta import Raw
from moorage.api.runtime_group import GROUP
from moorage.attach.manifests.identity import (
    RUNTIME_AGENT,
    Obj,
    account,
    cluster_role,
    labels,
    metadata,
    part_name,
    role,
    rule,
    selector,
)
from moorage.attach.manifests.workloads import container
from moorage.attach.values import Values
from moorage.runtimes.probing.pod_carrier import NAMESPACE as PROBE_NAMESPACE

DATA_DIRECTORY = "/var/lib/moorage-agent"
SOCKETS = "/run"
ENGINE_CONFIGURATIONS = ("/etc/containerd", "/etc/crio")
TEMPORARY = "/tmp"
CAPABILITIES = ("SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE")
"""Of an agent that installs runtimes: nsenter enters the host's mount namespace to call systemctl
there (SYS_ADMIN, SYS_CHROOT), and that namespace, the engine's command line and its environment are
reached through /proc (SYS_PTRACE)."""

_EVENTS_NAMESPACE = "default"
"""Where events about objects without a namespace are."""
_STOP_S = 60
_LEVELS = ("enforce", "audit", "warn")
_NODE_VARIABLE = "NODE_NAME"


def objects(values: Values) -> list[Obj]:
    """Return the agent's objects."""
    return [
        _probe_namespace(),
        account(values, RUNTIME_AGENT),
        *cluster_role(values, RUNTIME_AGENT, _cluster_rules(values)),
        *role(values, RUNTIME_AGENT, _PROBE_RULES, namespace=PROBE_NAMESPACE, suffix="-probes"),
        *role(values, RUNTIME_AGENT, _EVENT_RULES, namespace=_EVENTS_NAMESPACE, suffix="-events"),
        _daemon_set(values),
    ]


def _probe_namespace() -> Obj:
    """Return the namespace of probe pods, some of which are privileged to see what that gives.

    It is apart from the parts', so that rights on probe pods are none on other pods.
    """
    made = metadata(PROBE_NAMESPACE, RUNTIME_AGENT)
    made["labels"] |= {f"pod-security.kubernetes.io/{level}": "privileged" for level in _LEVELS}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": made}


def _cluster_rules(values: Values) -> list[Raw]:
    """Return the rules of the ClusterRole; the admission policy narrows them to the own node."""
    read = ["get", "list", "watch"]
    rules: list[Raw] = [
        rule("", ["nodes"], [*read, "patch"]),
        rule(GROUP, ["runtimeprofiles"], [*read, "create", "delete"]),
        rule(GROUP, ["runtimeprofiles/status"], ["update"]),
        rule("node.k8s.io", ["runtimeclasses"], ["list", "create", "delete"]),
    ]
    if values.agent.installs_runtimes:
        rules += [
            rule(GROUP, ["runtimeinstallations"], read),
            rule(GROUP, ["runtimeinstallations/status"], ["patch"]),
        ]
    return rules


_PROBE_RULES: tuple[Raw, ...] = (
    rule("", ["pods"], ["get", "list", "watch", "create", "delete"]),
    rule("", ["pods/log"], ["get"]),
    # By WebSocket, which needs get, and create from Kubernetes 1.35 on.
    rule("", ["pods/exec", "pods/portforward"], ["get", "create"]),
    rule("", ["pods/resize"], ["patch"]),
    rule("", ["events"], ["list", "watch"]),
)
_EVENT_RULES: tuple[Raw, ...] = (rule("", ["events"], ["create", "patch"]),)


def _daemon_set(values: Values) -> Obj:
    agent = values.agent
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(part_name(RUNTIME_AGENT), RUNTIME_AGENT, namespace=values.namespace),
        "spec": {
            "selector": {"matchLabels": selector(RUNTIME_AGENT)},
            # An agent that is away disturbs no pod, but many at once would hide what changes.
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": "10%"},
            },
            "template": {
                "metadata": {"labels": labels(RUNTIME_AGENT)},
                "spec": {
                    "serviceAccountName": part_name(RUNTIME_AGENT),
                    "priorityClassName": "system-node-critical",
                    "nodeSelector": dict(agent.node_selector),
                    "tolerations": [dict(toleration) for toleration in agent.tolerations],
                    "terminationGracePeriodSeconds": _STOP_S,
                    # The host's first process: what probes see is compared with it, and it is the
                    # way into the host's mount namespace.
                    "hostPID": True,
                    "containers": [_container(values)],
                    "volumes": [volume for volume, _ in _mounts(values)],
                },
            },
        },
    }


def _container(values: Values) -> Raw:
    return {
        **container(values, RUNTIME_AGENT, values.agent.resources),
        "args": _arguments(values),
        "env": [
            {"name": _NODE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
        ],
        "securityContext": _security_context(values),
        "volumeMounts": [mount for _, mount in _mounts(values)],
    }


def _arguments(values: Values) -> list[str]:
    arguments = [
        "runtime-agent",
        "--in-cluster",
        f"--node-name=$({_NODE_VARIABLE})",
        f"--data-dir={DATA_DIRECTORY}",
        # Probes run from the agent's own image, which is on each node: nothing is imported.
        f"--probe-image={values.image}",
        f"--log-level={values.log_level}",
    ]
    if values.agent.cri:
        arguments.append(f"--cri={values.agent.cri}")
    if values.agent.restart_command:
        arguments.append(f"--restart-command={values.agent.restart_command}")
    if not values.agent.installs_runtimes:
        arguments.append("--no-install")
    return arguments


def _security_context(values: Values) -> Raw:
    context: dict[str, Any] = {
        # Engines' sockets are open to root alone.
        "runAsUser": 0,
        "runAsGroup": 0,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
        # The type of containers may not connect to the engine's socket.
        "seLinuxOptions": {"type": "spc_t"},
    }
    if values.agent.installs_runtimes:
        context["capabilities"] = {"add": list(CAPABILITIES), "drop": ["ALL"]}
        # The engines' default profile forbids to look at the engine's process.
        context["appArmorProfile"] = {"type": "Unconfined"}
    return context


def _mounts(values: Values) -> list[tuple[Raw, Raw]]:
    """Return volumes and their mounts: each directory of the host at its own path."""
    agent = values.agent
    sockets = SOCKETS
    if agent.cri:
        sockets = str(PurePosixPath(agent.cri.removeprefix("unix://")).parent)
    mounts = [
        # A socket can be connected to on a read-only mount.
        _host_directory("sockets", sockets, "Directory", is_read_only=True),
        _host_directory("data", DATA_DIRECTORY, "DirectoryOrCreate"),
    ]
    if agent.installs_runtimes:
        mounts += [
            _host_directory(PurePosixPath(path).name, path, "DirectoryOrCreate")
            for path in ENGINE_CONFIGURATIONS
        ]
        mounts += [
            _host_directory(f"host-{number}", path, "Directory")
            for number, path in enumerate(agent.host_paths)
            # A path is mounted once, and the engine's socket needs no more.
            if PurePosixPath(path) != PurePosixPath(sockets)
        ]
    mounts.append(({"name": "tmp", "emptyDir": {}}, {"name": "tmp", "mountPath": TEMPORARY}))
    return mounts


def _host_directory(
    name: str, path: str, kind: str, *, is_read_only: bool = False
) -> tuple[Raw, Raw]:
    mount: Raw = {"name": name, "mountPath": path}
    if is_read_only:
        mount["readOnly"] = True
    return {"name": name, "hostPath": {"path": path, "type": kind}}, mount
