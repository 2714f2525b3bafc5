"""Short ways to write the pods, and what an engine has of them, that the tests talk about."""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.api.containers import Container
from moorage.api.nodes import Node
from moorage.api.pods import Pod, PodStatus
from moorage.node.config.downward import DownwardInputs
from moorage.node.pod_facts.containers import pod_qos_class
from moorage.node.pod_facts.labels import ContainerRecord, container_hash
from moorage.node.runtime.views import ContainerView, PodView, SandboxView, State, pod_view
from moorage.node.status.inputs import StatusInputs
from tests.clocks import START, START_NS

UID = "11111111-2222-3333-4444-555555555555"
WHERE = DownwardInputs(
    host_ips=("10.0.0.1",),
    pod_ips=("10.1.0.5", "fd00::5"),
    allocatable={"cpu": "4", "memory": "8Gi", "ephemeral-storage": "100Gi"},
)

_SECOND = 1_000_000_000

Wire = dict[str, Any]


def wire_container(name: str = "app", **fields: Any) -> Wire:
    return {"name": name, "image": f"{name}:1", **fields}


def a_container(name: str = "app", **fields: Any) -> Container:
    """A container; `fields` are the wire's, in camelCase."""
    return msgspec.convert(wire_container(name, **fields), Container)


def a_pod(
    *containers: Wire,
    name: str = "web",
    meta: Wire | None = None,
    status: Wire | None = None,
    **spec: Any,
) -> Pod:
    """A pod; one container `app` unless others are given. `spec` is the wire's, in camelCase."""
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "shop", "uid": UID, **(meta or {})},
            "spec": {
                "containers": list(containers) or [wire_container()],
                "restartPolicy": "Always",
                **spec,
            },
            "status": status or {},
        },
        Pod,
    )


def a_node(**fields: Any) -> Node:
    return msgspec.convert({"metadata": {"name": "n1"}, **fields}, Node)


def a_sandbox(id_: str = "s0", **fields: Any) -> SandboxView:
    """A ready sandbox with an address; what differs is said."""
    usual: dict[str, Any] = {
        "uid": UID,
        "name": "web",
        "namespace": "shop",
        "attempt": 0,
        "is_ready": True,
        "created_ns": START_NS,
        "handler": "",
        "is_host_network": False,
        "ips": ("10.1.0.5",),
        "owner": "c1_n1",
    }
    return SandboxView(id=id_, **(usual | fields))


def container_record(**fields: Any) -> ContainerRecord:
    usual: dict[str, Any] = {
        "hash": None,
        "restart_count": 0,
        "message_path": "",
        "message_policy": "",
        "grace_period_s": None,
        "pre_stop": None,
    }
    return ContainerRecord(**(usual | fields))


def engine_has(
    name: str = "app",
    state: State = State.RUNNING,
    code: int = 0,
    *,
    id_: str = "",
    restarts: int = 0,
    created_s: float = 1,
    finished_s: float | None = None,
    image: str | None = None,
    **fields: Any,
) -> ContainerView:
    """A container of the pod as the engine has it; moments are seconds after the start."""
    made_from = msgspec.convert({"name": name, "image": image or f"{name}:1"}, Container)
    ended_s = created_s + 1 if finished_s is None else finished_s
    usual: dict[str, Any] = {
        "id": id_ or f"{name}-{restarts}",
        "uid": UID,
        "sandbox_id": "s0",
        "name": name,
        "state": state,
        "created_ns": _ns(created_s),
        "started_ns": 0 if state is State.CREATED else _ns(created_s),
        "finished_ns": _ns(ended_s) if state is State.EXITED else 0,
        "exit_code": code,
        "reason": _reason(state, code),
        "message": "",
        "image": f"{name}:1",
        "image_ref": f"sha256:{name}",
        "image_id": f"sha256:{name}",
        "log_path": f"/var/log/pods/{name}/{restarts}.log",
        "memory": container_record(hash=container_hash(made_from), restart_count=restarts),
    }
    return ContainerView(**(usual | fields))


def exited(name: str = "app", code: int = 0, **fields: Any) -> ContainerView:
    return engine_has(name, State.EXITED, code, **fields)


def a_view(*views: SandboxView | ContainerView) -> PodView:
    """What the engine has of the pod; a ready sandbox unless one is given."""
    sandboxes = [view for view in views if isinstance(view, SandboxView)]
    containers = [view for view in views if isinstance(view, ContainerView)]
    return pod_view(UID, sandboxes or [a_sandbox()], containers)


def status_inputs(pod: Pod, view: PodView, **fields: Any) -> StatusInputs:
    """Everything about a pod whose sandbox serves; what differs is said."""
    usual: dict[str, Any] = {
        "before": PodStatus(),
        "engine": "containerd",
        "now": START,
        "host_ips": ("10.0.0.1",),
        "qos_class": pod_qos_class(pod),
        "is_ready_to_start": True,
    }
    return StatusInputs(pod=pod, view=view, **(usual | fields))


def _ns(seconds: float) -> int:
    return START_NS + int(seconds * _SECOND)


def _reason(state: State, code: int) -> str:
    if state is not State.EXITED:
        return ""
    return "Completed" if code == 0 else "Error"
