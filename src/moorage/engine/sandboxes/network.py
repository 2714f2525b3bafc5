"""CNI runtime configuration of a pod: capability arguments and CNI_ARGS.

Source: CNI conventions (capability arguments, CNI_ARGS), as containerd and CRI-O pass them; the
bandwidth annotations are Kubernetes'.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moorage.api.quantity import parse as parse_quantity
from moorage.engine.errors import InvalidError
from moorage.engine.networks import RuntimeConf
from moorage.wire.cri import pb

_INGRESS = "kubernetes.io/ingress-bandwidth"
_EGRESS = "kubernetes.io/egress-bandwidth"
_BURST_BITS = (1 << 31) - 1
_PROTOCOLS = {pb.TCP: "tcp", pb.UDP: "udp", pb.SCTP: "sctp"}


def cni_runtime_conf(sandbox_id: str, config: pb.PodSandboxConfig) -> RuntimeConf:
    """Return a pod's runtime configuration. Raises InvalidError for an invalid bandwidth."""
    metadata = config.metadata
    return RuntimeConf(
        container_id=sandbox_id,
        netns=Path(),
        capability_args=capability_args(config),
        args={
            "IgnoreUnknown": "1",
            "K8S_POD_NAMESPACE": metadata.namespace,
            "K8S_POD_NAME": metadata.name,
            "K8S_POD_INFRA_CONTAINER_ID": sandbox_id,
            "K8S_POD_UID": metadata.uid,
        },
    )


def capability_args(config: pb.PodSandboxConfig) -> dict[str, Any]:
    """Return `portMappings` and `bandwidth`, each only if the pod has some.

    Raises InvalidError for a bandwidth that is not a quantity.
    """
    args: dict[str, Any] = {}
    ports = [_port_mapping(mapping) for mapping in config.port_mappings if mapping.host_port > 0]
    if ports:
        args["portMappings"] = ports
    bandwidth = {
        **_rate(config.annotations, _INGRESS, "ingress"),
        **_rate(config.annotations, _EGRESS, "egress"),
    }
    if bandwidth:
        args["bandwidth"] = bandwidth
    return args


def _port_mapping(mapping: pb.PortMapping) -> dict[str, Any]:
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
        raise InvalidError(f"annotation {name}: {text!r} is not a quantity, such as 10M") from error
    return {f"{direction}Rate": bits, f"{direction}Burst": _BURST_BITS}
