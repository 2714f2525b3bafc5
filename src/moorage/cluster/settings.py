"""Settings of a cluster: decided at its first start and kept in its data directory."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from moorage.api import names
from moorage.api.containers import NEVER_VERIFY_PRELOADED
from moorage.api.host_ports import Listener
from moorage.api.missing_network import CONTROLLER, EVERYTHING, NOTHING
from moorage.cluster.access.private_files import write_private
from moorage.cluster.errors import ClusterError
from moorage.cluster.reservations import Reservations
from moorage.linux.address import own_address

# Choices for a cluster, given when it is started.


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Options of a start; None for each option that was not given.

    `cri` is empty for the cluster's own engine, `audit_policy` for no audit log,
    `admission_configuration` for the defaults of all admission plugins, `kubelet_configuration` for
    those of the node agent.
    `accepts_loss`: start although files that record the cluster are missing or older than recorded.
    """

    name: str | None = None
    node_name: str | None = None
    api_port: int | None = None
    node_port: int | None = None
    pod_network: str | None = None
    service_network: str | None = None
    cri: str | None = None
    has_node: bool | None = None
    without: tuple[str, ...] | None = None
    filters_by_handler: bool | None = None
    log_level: str | None = None
    seccomp_default: bool | None = None
    pod_pids_limit: int | None = None
    image_limit_bytes: int | None = None
    audit_policy: str | None = None
    admission_configuration: str | None = None
    kubelet_configuration: str | None = None
    default_classes: bool | None = None
    accepts_loss: bool = False
    image_verification: str | None = None
    image_allowlist: tuple[str, ...] | None = None
    gates: dict[str, bool] = field(default_factory=dict)
    registry_mirrors: dict[str, str] = field(default_factory=dict)

    def given(self) -> dict[str, object]:
        """Return the settings that were given, by name; `accepts_loss` is not a setting."""
        return {
            name: value
            for name in self.__dataclass_fields__
            if name != "accepts_loss" and (value := getattr(self, name)) not in (None, {})
        }


DEFAULT_API_PORT = 6443
DEFAULT_NODE_PORT = 10250
DEFAULT_CONTROLLERS_PORT = 10257
DEFAULT_SCHEDULER_PORT = 10259
DEFAULT_IMAGE_LIMIT_BYTES = 128 << 30
DEFAULT_POD_PIDS_LIMIT = 4096
"""Processes and threads that one pod may have; the kubelet's own default is no limit."""
SCHEDULER, CONTROLLERS, NODE = "scheduler", "controllers", "node"
"""Parts that `moor up --without` leaves to other programs."""
RUNTIMES = "runtimes"
"""What `moor up --without` leaves to `moor attach`: all that Kubernetes does not have."""
_PORT_TRIES = 50
_PORT_PATIENCE_S = 5.0
_PORT_POLL_S = 0.05


class SettingsError(ClusterError, ValueError):
    """Settings contradict each other or the existing cluster, or cannot be used."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cluster's settings. Addresses are IPv4.

    `controllers_port` and `scheduler_port` are those of their metrics, on loopback; 0 before the
    first start that has them. `cri` is the endpoint of an external engine, empty for our own;
    `has_node` is false for a control plane alone. `without` names the parts that another program
    takes the place of: SCHEDULER, CONTROLLERS, NODE, RUNTIMES. `gates` are feature gates that
    differ from their default.
    `seccomp_default` and `pod_pids_limit` (-1: unlimited) are KubeletConfiguration's
    `seccompDefault` and `podPidsLimit`, `image_verification` and `image_allowlist` its
    `imagePullCredentialsVerificationPolicy` and `preloadedImagesVerificationAllowlist`.
    `audit_policy` is the path of the policy file of the API server's audit log, empty without one,
    `admission_configuration` that of the configuration of admission plugins,
    `kubelet_configuration` that of the node agent's.
    `image_limit_bytes` is the maximum unpacked size of an image with our own engine.
    `default_classes` is whether handlers that work get RuntimeClasses.
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
    controllers_port: int = 0
    scheduler_port: int = 0
    has_node: bool = True
    without: tuple[str, ...] = ()
    cri: str = ""
    gates: dict[str, bool] = {}
    filters_by_handler: bool = True
    registry_mirrors: dict[str, str] = {}
    log_level: str = "info"
    seccomp_default: bool = False
    pod_pids_limit: int = DEFAULT_POD_PIDS_LIMIT
    image_verification: str = NEVER_VERIFY_PRELOADED
    image_allowlist: tuple[str, ...] = ()
    audit_policy: str = ""
    admission_configuration: str = ""
    kubelet_configuration: str = ""
    image_limit_bytes: int = DEFAULT_IMAGE_LIMIT_BYTES
    default_classes: bool = True

    @property
    def has_runtimes(self) -> bool:
        """Whether the cluster has discovery, policies and the kinds of our own group inside."""
        return RUNTIMES not in self.without

    @property
    def has_provisioner_alone(self) -> bool:
        """Whether the provisioner of local volumes runs beside other controllers than ours.

        Its volumes are mounted by our node agents, not by another program.
        """
        return CONTROLLERS in self.without and NODE not in self.without

    @property
    def routes_services(self) -> bool:
        """Return whether Services are routed: pods of an external engine have its network."""
        return self.has_node and not self.cri

    @property
    def missing_network(self) -> frozenset[str]:
        """The kinds of network objects that nothing of this cluster implements, by plural."""
        if not self.has_node:
            return NOTHING
        return CONTROLLER if self.routes_services else EVERYTHING

    @property
    def dns_address(self) -> str:
        """The address of the cluster DNS on the bridge, which no pod gets."""
        return str(ipaddress.IPv4Network(self.pod_network)[2])

    @property
    def dns_ip(self) -> str:
        """The cluster IP of the Service `kube-dns`."""
        return str(ipaddress.IPv4Network(self.service_network)[10])

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
        """The addresses that the API listens on: for the host, and for pods.

        Pods of our own engine reach it over their bridge; those of an external engine, and of
        another program in the node agent's place, at the node's address.
        """
        if not self.has_node and NODE not in self.without:
            return ("127.0.0.1",)
        return tuple(dict.fromkeys(("127.0.0.1", self.pod_facing_address)))

    @property
    def pod_facing_address(self) -> str:
        """The API's address in the pods' environment."""
        return self.node_ip if self.cri or NODE in self.without else self.gateway

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The addresses and ports that the cluster's parts listen on."""
        api = (Listener("API server", address, self.api_port) for address in self.api_addresses)
        metrics = (
            Listener(name, "127.0.0.1", port)
            for name, port in (
                ("controllers", self.controllers_port),
                ("scheduler", self.scheduler_port),
            )
            if port
        )
        agent = Listener(f"agent of node {self.node_name}", self.node_ip, self.node_port)
        return (*api, *metrics, agent) if self.has_node else (*api, *metrics)

    @property
    def server(self) -> str:
        """The API's URL on this host."""
        return f"https://127.0.0.1:{self.api_port}"

    def is_enabled(self, gate: str) -> bool:
        """Return whether a feature gate is on; one that is not in `gates` is."""
        return self.gates.get(gate, True)


def load(path: Path) -> Settings | None:
    """Return the settings in a file, None if it is missing. Raises SettingsError if damaged."""
    try:
        settings = msgspec.json.decode(path.read_bytes(), type=Settings)
        for network in (settings.pod_network, settings.service_network):
            ipaddress.IPv4Network(network)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        # msgspec raises RecursionError for a value that is nested too deeply.
        raise SettingsError(
            f"{path} is damaged ({error}); restore it, or start in another directory with "
            "--data-dir"
        ) from error
    return settings


def save(path: Path, settings: Settings) -> None:
    """Write the settings atomically, readable by their owner only. Raises OSError."""
    write_private(path, msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n")


def new_cluster_id() -> str:
    """Return eight random hex digits, part of the name of all that the cluster has on the host."""
    return secrets.token_hex(4)


def node_name(chosen: str | None = None, host_name: Callable[[], str] = socket.gethostname) -> str:
    """Return the chosen name, else the host's. Raises SettingsError for an invalid node name."""
    name = host_name().lower() if chosen is None else chosen
    complaints = names.dns_subdomain_errors(name)
    if complaints:
        what = "the host name" if chosen is None else "--node-name"
        advice = "; give one with --node-name" if chosen is None else ""
        raise SettingsError(f"{what} {name!r} is not a node name ({complaints[0]}){advice}")
    return name


def free_port(
    preferred: int,
    reservations: Reservations,
    address: str = "127.0.0.1",
    *,
    others: Collection[int] = (),
    tries: int = _PORT_TRIES,
) -> int:
    """Reserve the preferred port of an address, or the next free one; return it.

    `others` are the ports that the cluster's other parts have there: what is reserved for this
    cluster counts as free. Raises SettingsError if `tries` ports in a row are in use.
    """
    for port in range(preferred, preferred + tries):
        if port not in others and not _port_complaint(port, address, reservations):
            return port
    raise SettingsError(f"no free port from {preferred} on")


def require_port(
    port: int,
    address: str,
    option: str,
    reservations: Reservations,
    *,
    patience_s: float = _PORT_PATIENCE_S,
) -> None:
    """Reserve a port. Raises SettingsError if it stays in use; `option` chooses another port.

    Blocks for up to `patience_s`: the parts of a killed cluster release their ports one by one, and
    nothing announces that.
    """
    deadline = time.monotonic() + patience_s
    while complaint := _port_complaint(port, address, reservations):
        if time.monotonic() > deadline:
            raise SettingsError(
                f"port {port} of {address} cannot be used ({complaint}); "
                f"choose another with {option}"
            )
        time.sleep(_PORT_POLL_S)


def _port_complaint(port: int, address: str, reservations: Reservations) -> str:
    """Reserve a port. Return why it cannot be used, empty if it is reserved."""
    reservation = f"port {address}:{port}"
    if not reservations.take(reservation):
        # Any local user may bind an abstract name, so the error says how to find who did.
        return (
            "another cluster is starting or running with it "
            f"(`ss -xap | grep '@moorage/{reservation}'` shows the process that holds it)"
        )
    complaint = _bind_complaint(port, address)
    if complaint:
        reservations.release(reservation)
    return complaint


def _bind_complaint(port: int, address: str) -> str:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


def host_ip() -> str:
    """Return this host's IPv4 address towards other hosts; loopback without a route."""
    return own_address((socket.AF_INET,))
