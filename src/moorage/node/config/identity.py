"""Pod identity: hostname, domain and /etc/hosts.

Pure. Source: core/v1 PodSpec `hostname`, `subdomain`, `hostnameOverride`, `hostAliases`; kubelet
`GeneratePodHostNameAndDomain`, `managedHostsFileContent`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from moorage.api import names
from moorage.api.pods import HostAlias, Pod
from moorage.node.config.errors import ConfigError

HOSTS_PATH = "/etc/hosts"

_LONGEST = 63
_LONGEST_NODENAME = 64
_TAB = "\t"
_HEADER = "# Kubernetes-managed hosts file.\n"
_HEADER_HOST_NETWORK = "# Kubernetes-managed hosts file (host network).\n"
_LOCAL = (
    "127.0.0.1\tlocalhost\n"
    "::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\n"
    "fe00::0\tip6-mcastprefix\n"
    "fe00::1\tip6-allnodes\n"
    "fe00::2\tip6-allrouters\n"
)


@dataclass(frozen=True, slots=True)
class Hostname:
    """Hostname of a pod; `domain` is empty without a subdomain."""

    name: str
    domain: str = ""

    @property
    def full(self) -> str:
        """Hostname with the domain, if there is one."""
        return f"{self.name}.{self.domain}" if self.domain else self.name


def hostname_of(pod: Pod, cluster_domain: str) -> Hostname:
    """Return the pod's hostname and domain. Raises ConfigError for an invalid name."""
    spec = pod.spec
    if spec.hostname_override is not None:
        _check("HostnameOverride", spec.hostname_override, names.dns_subdomain_errors)
        return Hostname(_cut(spec.hostname_override, pod))
    if spec.hostname:
        _check("Hostname", spec.hostname, names.dns_label_errors)
    domain = ""
    if spec.subdomain:
        _check("Subdomain", spec.subdomain, names.dns_label_errors)
        domain = f"{spec.subdomain}.{pod.metadata.namespace}.svc.{cluster_domain}"
    return Hostname(_cut(spec.hostname or pod.metadata.name, pod), domain)


def kernel_hostname(pod: Pod, hostname: Hostname) -> str:
    """Return the kernel hostname (`uname -n`) of the pod.

    Raises ConfigError when it exceeds 64 characters.
    """
    if not (pod.spec.set_hostname_as_fqdn and hostname.domain):
        return hostname.name
    if len(hostname.full) > _LONGEST_NODENAME:
        raise ConfigError(
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {hostname.full} "
            f"is too long ({_LONGEST_NODENAME} characters is the max, {len(hostname.full)} "
            "characters requested)"
        )
    return hostname.full


def hosts_file(hostname: Hostname, addresses: Iterable[str], aliases: Iterable[HostAlias]) -> str:
    """Return the /etc/hosts of a pod with its own network."""
    own_names = f"{hostname.full}\t{hostname.name}" if hostname.domain else hostname.name
    own = "".join(f"{address}\t{own_names}\n" for address in addresses)
    return _HEADER + _LOCAL + own + _alias_lines(aliases)


def host_network_hosts_file(of_node: str, aliases: Iterable[HostAlias]) -> str:
    """Return the /etc/hosts of a pod on the host network: the node's, with the aliases appended."""
    return _HEADER_HOST_NETWORK + of_node + _alias_lines(aliases)


def _alias_lines(aliases: Iterable[HostAlias]) -> str:
    lines = [f"{alias.ip}\t{_TAB.join(alias.hostnames)}\n" for alias in aliases]
    if not lines:
        return ""
    return "\n# Entries added by HostAliases.\n" + "".join(lines)


def _check(field: str, value: str, errors_of: Callable[[str], list[str]]) -> None:
    complaints = errors_of(value)
    if complaints:
        what = "DNS subdomain" if field == "HostnameOverride" else "DNS label"
        raise ConfigError(f'pod {field} "{value}" is not a valid {what}: {";".join(complaints)}')


def _cut(hostname: str, pod: Pod) -> str:
    if len(hostname) <= _LONGEST:
        return hostname
    cut = hostname[:_LONGEST].rstrip("-.")
    if not cut:
        raise ConfigError(f'hostname for pod "{pod.metadata.name}" was invalid: "{hostname}"')
    return cut
