"""DNS configuration of a pod.

Pure, from the pod's policy, the cluster's DNS and the node's resolv.conf, within the limits of
resolvers. Without a cluster DNS, `ClusterFirst` uses the node's resolver. Source: core/v1
`dnsPolicy` and `dnsConfig`, kubelet `network/dns`, resolv.conf(5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from moorage.api.pods import Pod, PodDNSConfig
from moorage.wire.cri import pb

_MAX_SERVERS = 3
_MAX_SEARCHES = 32
_MAX_SEARCH_CHARS = 2048
_MAX_DOMAIN = 253
_CLUSTER_OPTIONS = ("ndots:5",)


@dataclass(frozen=True, slots=True)
class Resolver:
    """Name servers, search domains and options, in order."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def to_cri(self) -> pb.DNSConfig:
        return pb.DNSConfig(servers=self.servers, searches=self.searches, options=self.options)


@dataclass(frozen=True, slots=True)
class PodDns:
    """DNS configuration of a pod, and event messages about omitted or replaced parts."""

    resolver: Resolver
    complaints: tuple[str, ...] = ()
    lacks_cluster_dns: bool = False


def parse_resolv_conf(text: str) -> Resolver:
    """Parse a resolv.conf."""
    servers: list[str] = []
    searches: list[str] = []
    options: dict[str, str] = {}
    for line in text.splitlines():
        fields = line.split()
        if not fields or fields[0].startswith(("#", ";")):
            continue
        match fields[0]:
            case "nameserver":
                servers += fields[1:2]
            case "search":
                searches = [field.removesuffix(".") for field in fields[1:] if field != "."]
            case "options":
                options |= {field.partition(":")[0]: field for field in fields[1:]}
    return Resolver(tuple(servers), tuple(searches), tuple(options.values()))


def pod_dns(
    pod: Pod, node: Resolver, cluster_servers: Sequence[str], cluster_domain: str
) -> PodDns:
    """Return the DNS configuration of a pod."""
    policy = pod.spec.dns_policy or "ClusterFirst"
    is_cluster_first = policy == "ClusterFirstWithHostNet" or (
        policy == "ClusterFirst" and not pod.spec.host_network
    )
    lacks_cluster_dns = is_cluster_first and not cluster_servers
    if policy == "None":
        unlimited = Resolver()
    elif is_cluster_first and cluster_servers:
        searches = _cluster_searches(pod.metadata.namespace, cluster_domain, node.searches)
        unlimited = Resolver(tuple(cluster_servers), searches, _CLUSTER_OPTIONS)
    else:
        unlimited = node
    if pod.spec.dns_config is not None:
        unlimited = _with_config(unlimited, pod.spec.dns_config)
    resolver, complaints = _within_limits(unlimited)
    return PodDns(resolver, complaints, lacks_cluster_dns)


def _cluster_searches(namespace: str, domain: str, of_node: Iterable[str]) -> tuple[str, ...]:
    if not domain:
        return tuple(of_node)
    return _unique((f"{namespace}.svc.{domain}", f"svc.{domain}", domain, *of_node))


def _with_config(base: Resolver, config: PodDNSConfig) -> Resolver:
    options = {option.partition(":")[0]: option for option in base.options}
    for option in config.options:
        text = f"{option.name}:{option.value}" if option.value else option.name
        options[option.name] = text
    return Resolver(
        _unique((*base.servers, *config.nameservers)),
        _unique((*base.searches, *config.searches)),
        tuple(options.values()),
    )


def _within_limits(resolver: Resolver) -> tuple[Resolver, tuple[str, ...]]:
    complaints: list[str] = []
    servers = resolver.servers[:_MAX_SERVERS]
    if servers != resolver.servers:
        complaints.append(
            "Nameserver limits were exceeded, some nameservers have been omitted, "
            f"the applied nameserver line is: {' '.join(servers)}"
        )
    searches = tuple(
        domain for domain in resolver.searches[:_MAX_SEARCHES] if len(domain) <= _MAX_DOMAIN
    )
    while len(" ".join(searches)) > _MAX_SEARCH_CHARS:
        searches = searches[:-1]
    if searches != resolver.searches:
        complaints.append(
            "Search Line limits were exceeded, some search paths have been omitted, "
            f"the applied search line is: {' '.join(searches)}"
        )
    return Resolver(servers, searches, resolver.options), tuple(complaints)


def _unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
