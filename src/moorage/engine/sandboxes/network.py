"""What a pod asks of its network, in CNI's words.

Source: CNI conventions (capability arguments, CNI_ARGS), as containerd and CRI-O pass them; the
bandwidth annotations are Kubernetes'.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moorage.api.quantity import parse as parse_quantity
from moorage.cri import pb
from moorage.engine.errors import InvalidError
from moorage.engine.networks import Subject

_INGRESS = "kubernetes.io/ingress-bandwidth"
_EGRESS = "kubernetes.io/egress-bandwidth"
_BURST_BITS = (1 << 31) - 1
_PROTOCOLS = {pb.TCP: "tcp", pb.UDP: "udp", pb.SCTP: "sctp"}


def network_subject(sandbox_id: str, config: pb.PodSandboxConfig) -> Subject:
    """Whom the plugins work for. Raises InvalidError for a bandwidth that is no quantity."""
    metadata = config.metadata
    return Subject(
        id=sandbox_id,
        netns=Path(),
        arguments=capability_arguments(config),
        words={
            "IgnoreUnknown": "1",
            "K8S_POD_NAMESPACE": metadata.namespace,
            "K8S_POD_NAME": metadata.name,
            "K8S_POD_INFRA_CONTAINER_ID": sandbox_id,
            "K8S_POD_UID": metadata.uid,
        },
    )


def capability_arguments(config: pb.PodSandboxConfig) -> dict[str, Any]:
    """Host ports and bandwidth, each only where the pod has some."""
    arguments: dict[str, Any] = {}
    ports = [_port(each) for each in config.port_mappings if each.host_port > 0]
    if ports:
        arguments["portMappings"] = ports
    bandwidth = {
        **_rate(config.annotations, _INGRESS, "ingress"),
        **_rate(config.annotations, _EGRESS, "egress"),
    }
    if bandwidth:
        arguments["bandwidth"] = bandwidth
    return arguments


def _port(mapping: pb.PortMapping) -> dict[str, Any]:
    port = {
        "hostPort": mapping.host_port,
        "containerPort": mapping.container_port,
        "protocol": _PROTOCOLS[mapping.protocol],
    }
    return {**port, "hostIP": mapping.host_ip} if mapping.host_ip else port


def _rate(annotations: Any, name: str, direction: str) -> dict[str, int]:
    text = annotations.get(name, "")
    if not text:
        return {}
    try:
        bits = parse_quantity(text).value
    except ValueError as error:
        raise InvalidError(f"annotation {name}: {text!r} is no quantity") from error
    return {f"{direction}Rate": bits, f"{direction}Burst": _BURST_BITS}
