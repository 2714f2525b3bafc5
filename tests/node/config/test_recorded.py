"""What an engine is asked for of a rich pod, field by field, against recorded requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from moorage.node.config.container import ContainerSetting, container_config
from moorage.node.config.sandbox import sandbox_config
from moorage.node.config.security import ImageUser, SecurityDefaults
from moorage.wire.cri import pb
from tests.node.config.test_sandbox import SETTING
from tests.node.objects import a_pod, wire_container
from tests.recording import assert_recorded, digest

_RESOURCES = {"limits": {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "4Mi"},
              "requests": {"cpu": "250m", "memory": "512Mi"}}  # fmt: skip
_PORTS = [
    {"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "TCP"},
    {"containerPort": 53, "hostPort": 5353, "protocol": "UDP"},
    {"containerPort": 9},
]
_SECURITY = {
    "privileged": True, "readOnlyRootFilesystem": True, "allowPrivilegeEscalation": True,
    "runAsUser": 5, "runAsGroup": 6, "procMount": "Unmasked",
    "capabilities": {"add": ["A"], "drop": ["B"]},
    "seLinuxOptions": {"user": "u", "role": "r", "type": "t", "level": "l"},
    "seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"},
    "appArmorProfile": {"type": "RuntimeDefault"},
}  # fmt: skip
_OF_POD = {"runAsUser": 7, "runAsGroup": 8, "fsGroup": 9, "supplementalGroups": [10, 11],
           "supplementalGroupsPolicy": "Strict", "sysctls": [{"name": "net.x", "value": "1"}],
           "seccompProfile": {"type": "RuntimeDefault"}}  # fmt: skip
_PODS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rich": {"container": {"resources": _RESOURCES, "ports": _PORTS, "command": ["a", "$(A)"],
                           "args": ["b"], "workingDir": "/w", "tty": True, "stdin": True,
                           "stdinOnce": True, "lifecycle": {"stopSignal": "SIGUSR1"}}},
    "security": {"container": {"securityContext": _SECURITY}},
    "pod-security": {"spec": {"securityContext": _OF_POD}},
    "host": {"spec": {"hostNetwork": True, "hostPID": True, "hostIPC": True}},
    "shared": {"spec": {"shareProcessNamespace": True, "hostname": "h", "subdomain": "sub",
                        "setHostnameAsFQDN": True, "runtimeClassName": "gvisor"}},
    "overhead": {"container": {"resources": _RESOURCES},
                 "spec": {"overhead": {"cpu": "100m", "memory": "64Mi"}}},
    "guaranteed": {"container": {"resources": {"limits": _RESOURCES["limits"],
                                               "requests": _RESOURCES["limits"]}}},
}  # fmt: skip


def shown(message: Any) -> dict[str, Any]:
    wire = MessageToDict(message, preserving_proto_field_name=True)
    table: dict[str, Any] = {}
    for name, value in wire.items():
        inner = value.items() if name == "linux" else ((None, value),)
        for key, content in inner:
            short = content if len(repr(content)) < 600 else digest(content)
            table[name if key is None else f"{name}.{key}"] = short
    return table


@pytest.mark.parametrize("name", _PODS)
def test_requests(name: str) -> None:
    case = _PODS[name]
    meta = {"labels": {"l": "1"}, "annotations": {"a": "2"}}
    container = wire_container(**case.get("container", {}))
    pod = a_pod(container, meta=meta, **case.get("spec", {}))
    setting = ContainerSetting(
        restart_count=2,
        image_ref="sha256:abc",
        image_user=ImageUser(uid=0),
        environment={"A": "one"},
        mounts=[pb.Mount(container_path="/data", host_path="/x")],
        security=SecurityDefaults(seccomp_dir=Path("/seccomp"), masked_paths=("/sys/x",)),
        memory_capacity_bytes=1 << 33,
        oom_score_floor=-1000,
    )
    config = container_config(pod, pod.spec.containers[0], setting)
    config.annotations.pop("io.kubernetes.container.hash", None)
    table = {f"container {key}": value for key, value in shown(config).items()}
    sandbox = shown(sandbox_config(pod, 1, SETTING))
    table |= {f"sandbox {key}": value for key, value in sandbox.items()}
    assert_recorded(f"node/config/{name}", table)
