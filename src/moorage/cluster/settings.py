"""What one cluster is: decided at its first start, kept in its data folder ever after."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from pathlib import Path

import msgspec

from moorage.api import names
from moorage.cluster.files import write_private

DEFAULT_API_PORT = 6443
DEFAULT_NODE_PORT = 10250
_PORT_TRIES = 50


class SettingsError(ValueError):
    """Settings that contradict each other or the cluster there is."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cluster's settings. Addresses are IPv4.

    `cri` is the endpoint of a running engine, empty for an engine of our own; `has_node` is false
    for a control plane alone. `gates` are feature gates that differ from their default.
    """

    name: str
    cluster_id: str
    node_name: str
    api_port: int
    node_port: int
    node_ip: str
    pod_network: str
    service_network: str
    bridge: str
    has_node: bool = True
    cri: str = ""
    gates: dict[str, bool] = {}
    filters_by_handler: bool = True
    registry_mirrors: dict[str, str] = {}
    log_level: str = "info"

    @property
    def gateway(self) -> str:
        """The pods' gateway: the host's address on the bridge, where pods reach the API."""
        return str(ipaddress.IPv4Network(self.pod_network)[1])

    @property
    def service_ip(self) -> str:
        """The address of the service `kubernetes`."""
        return str(ipaddress.IPv4Network(self.service_network)[1])

    @property
    def api_addresses(self) -> tuple[str, ...]:
        """Where the API listens: for this machine, and where pods reach it.

        Pods of our own engine come over their bridge; those of another one by the node's address.
        """
        if not self.has_node:
            return ("127.0.0.1",)
        return tuple(dict.fromkeys(("127.0.0.1", self.pod_facing_address)))

    @property
    def pod_facing_address(self) -> str:
        """The API's address that pods are told."""
        return self.node_ip if self.cri else self.gateway

    @property
    def server(self) -> str:
        """The API's URL on this machine."""
        return f"https://127.0.0.1:{self.api_port}"

    def is_enabled(self, gate: str) -> bool:
        return self.gates.get(gate, True)


def load(path: Path) -> Settings | None:
    """The settings of an existing cluster. Raises SettingsError for a damaged file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Settings)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise SettingsError(f"{path}: {error}") from error


def save(path: Path, settings: Settings) -> None:
    write_private(path, msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n")


def new_cluster_id() -> str:
    """Eight hex digits that tell this cluster's things on the machine from another's."""
    return secrets.token_hex(4)


def default_node_name() -> str:
    """The host's name as a node name. Raises SettingsError when it cannot be one."""
    name = socket.gethostname().lower()
    complaints = names.dns_subdomain_errors(name)
    if complaints:
        raise SettingsError(
            f"the host name {name!r} is no node name ({complaints[0]}); give one with --node-name"
        )
    return name


def free_port(preferred: int, address: str = "127.0.0.1") -> int:
    """The preferred port of an address or the next that nobody listens on. Raises SettingsError."""
    for port in range(preferred, preferred + _PORT_TRIES):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise SettingsError(f"no free port from {preferred} on")


def host_ip() -> str:
    """The address this host would use towards others; loopback when it has no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing: it only asks for a route.
            probe.connect(("192.0.2.1", 9))
            address: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return address
