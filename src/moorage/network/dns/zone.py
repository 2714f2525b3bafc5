"""Zone: answers for names of the cluster, from the records of Services. Pure.

    SERVICE.NAMESPACE.svc.ZONE                A, AAAA, SRV of all ports; CNAME of an external name
    HOSTNAME.SERVICE.NAMESPACE.svc.ZONE       A, AAAA of endpoints; if headless, by address too
    _PORT._PROTOCOL.SERVICE.NAMESPACE.svc…    SRV
    10-0-0-1.NAMESPACE.pod.ZONE               A, of any address
    1.0.0.10.in-addr.arpa                     PTR

Source: Kubernetes DNS-Based Service Discovery 1.1.0; CoreDNS, plugin `kubernetes`, `pods insecure`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from moorage.network.dns.records import EndpointRecord, PortRecord, ServiceRecord

SCHEMA_VERSION: Final = "1.1.0"
TTL_S: Final = 30
_MAX_LABEL: Final = 63
_MAX_NAME: Final = 253

Name = tuple[str, ...]
"""Labels in lower case, without the root."""
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Record:
    """A resource record. `data` is an address, a name or a text; of SRV, port and target."""

    name: Name
    type: str
    data: str | Name | tuple[int, Name]


@dataclass(frozen=True, slots=True)
class Answer:
    """Records of a name; without any, whether it exists at all. `alias` is to be resolved too.

    `is_empty` says that the records are aliases, which lead to a name without such records.
    """

    records: tuple[Record, ...] = ()
    additional: tuple[Record, ...] = ()
    exists: bool = True
    alias: Name | None = None
    is_empty: bool = False


NO_NAME: Final = Answer(exists=False)
NO_DATA: Final = Answer()


@dataclass(slots=True)
class _Namespace:
    is_there: bool = False
    services: dict[str, ServiceRecord] = field(default_factory=dict)


class Zone:
    """The cluster's zone and its reverse zones."""

    def __init__(self, domain: str, address: str, networks: Iterable[Network] = ()) -> None:
        """`address` is the server's own; `networks` are those whose reverse names are ours."""
        self.name: Name = tuple(domain.lower().split("."))
        self._address = address
        self._networks = tuple(networks)
        self._namespaces: dict[str, _Namespace] = {}
        self._reverse: dict[str, dict[Name, None]] = {}

    def set_namespace(self, name: str, *, is_there: bool) -> None:
        """Note whether a namespace exists."""
        namespace = self._namespaces.setdefault(name, _Namespace())
        namespace.is_there = is_there
        self._drop_empty(name)

    def set_service(self, key: str, record: ServiceRecord | None) -> None:
        """Note a Service by `namespace/name`, None if it is gone."""
        space, _, name = key.partition("/")
        namespace = self._namespaces.setdefault(space, _Namespace())
        before = namespace.services.pop(name, None)
        if before is not None:
            for address, label in self._names(space, name, before):
                names = self._reverse.get(address, {})
                names.pop(label, None)
                if not names:
                    self._reverse.pop(address, None)
        if record is not None:
            namespace.services[name] = record
            for address, label in self._names(space, name, record):
                self._reverse.setdefault(address, {})[label] = None
        self._drop_empty(space)

    def keep_only(self, namespaces: set[str], services: set[str]) -> None:
        """Forget all other namespaces and Services."""
        for space, namespace in list(self._namespaces.items()):
            for name in list(namespace.services):
                if f"{space}/{name}" not in services:
                    self.set_service(f"{space}/{name}", None)
            if space not in namespaces:
                self.set_namespace(space, is_there=False)

    def is_ours(self, name: Name) -> bool:
        """Say whether a name is answered here, whether it exists or not."""
        if name[-len(self.name) :] == self.name:
            return True
        address = _reversed_address(name)
        return address is not None and (
            str(address) in self._reverse or any(address in network for network in self._networks)
        )

    def answer(self, name: Name, kind: str) -> Answer:
        """Return the records of a name that is ours. `kind` is a type, such as `AAAA`."""
        if name[-len(self.name) :] != self.name:
            return self._pointers(name, kind)
        rest = name[: -len(self.name)]
        match rest:
            case ():
                server = ("ns", "dns", *self.name)
                return self._typed([Record(name, "NS", server), Record(name, "SOA", "")], kind)
            case ("dns-version",):
                return self._typed([Record(name, "TXT", SCHEMA_VERSION)], kind)
            case ("ns", "dns"):
                return self._typed([_address_record(name, self._address)], kind)
            case ("svc",) | ("pod",) | ("dns",):
                return NO_DATA
            case (space, "svc" | "pod"):
                return NO_DATA if self._has(space) else NO_NAME
            case (dashed, space, "pod"):
                return self._pod(name, dashed, space, kind)
            case (*labels, service, space, "svc"):
                return self._service(name, tuple(labels), service, space, kind)
        return NO_NAME

    def _service(self, name: Name, labels: Name, service: str, space: str, kind: str) -> Answer:
        namespace = self._namespaces.get(space)
        record = namespace.services.get(service) if namespace and namespace.is_there else None
        if record is None:
            return NO_NAME
        full = (service, space, "svc", *self.name)
        if record.external_name:
            # What looks like an address is no name, as the API's documentation says.
            if labels or _is_address(record.external_name):
                return NO_NAME
            target = tuple(record.external_name.lower().rstrip(".").split("."))
            is_name = all(0 < len(label) <= _MAX_LABEL for label in target)
            if not is_name or len(record.external_name) > _MAX_NAME:
                # The API takes what is no name of DNS.
                return NO_DATA
            alias = target if kind != "CNAME" else None
            return Answer((Record(name, "CNAME", target),), alias=alias)
        match labels:
            case ():
                return _whole_service(name, full, record, kind)
            case (port, protocol) if port.startswith("_") and protocol.startswith("_"):
                return _ports(name, full, record, port[1:], protocol[1:], kind)
            case (hostname,):
                ends = [one for one in record.endpoints if _label(one) == hostname]
                if not ends:
                    return NO_NAME
                if kind == "SRV":
                    return _pointing(name, full, ends, lambda _: True)
                return self._typed([_address_record(name, one.address) for one in ends], kind)
        return NO_NAME

    def _pod(self, name: Name, dashed: str, space: str, kind: str) -> Answer:
        if not self._has(space):
            return NO_NAME
        # IPv4 has dashes for dots, IPv6 for colons.
        for text in (dashed.replace("-", "."), dashed.replace("-", ":")):
            try:
                address = ipaddress.ip_address(text)
            except ValueError:
                continue
            return self._typed([_address_record(name, str(address))], kind)
        return NO_NAME

    def _pointers(self, name: Name, kind: str) -> Answer:
        address = _reversed_address(name)
        names = self._reverse.get(str(address), {}) if address is not None else {}
        if not names:
            return NO_NAME
        return self._typed([Record(name, "PTR", target) for target in names], kind)

    def _typed(self, records: Iterable[Record], kind: str) -> Answer:
        wanted = tuple(record for record in records if kind in (record.type, "ANY"))
        return Answer(wanted) if wanted else NO_DATA

    def _has(self, space: str) -> bool:
        namespace = self._namespaces.get(space)
        return namespace is not None and namespace.is_there

    def _names(self, space: str, name: str, record: ServiceRecord) -> Iterator[tuple[str, Name]]:
        """Yield the addresses of a Service with their names, for reverse lookups."""
        full = (name, space, "svc", *self.name)
        for address in record.addresses:
            yield address, full
        for endpoint in record.endpoints:
            yield endpoint.address, (_label(endpoint), *full)

    def _drop_empty(self, space: str) -> None:
        namespace = self._namespaces[space]
        if not namespace.is_there and not namespace.services:
            del self._namespaces[space]


def _whole_service(name: Name, full: Name, record: ServiceRecord, kind: str) -> Answer:
    if not record.addresses and not record.endpoints:
        # A headless Service without a ready endpoint has no name, as upstream.
        return NO_NAME
    if kind == "SRV":
        return _ports(name, full, record, "", "", kind)
    addresses = record.addresses or [one.address for one in record.endpoints]
    records = dict.fromkeys(_address_record(name, address) for address in addresses)
    return Answer(tuple(one for one in records if kind in (one.type, "ANY")))


def _ports(
    name: Name, full: Name, record: ServiceRecord, port: str, protocol: str, kind: str
) -> Answer:
    """Return SRV records; without a port's name those of all ports."""

    def is_wanted(one: PortRecord) -> bool:
        return not protocol or (one.name.lower(), one.protocol) == (port, protocol)

    if record.addresses:
        # Two protocols may share a number.
        numbers = dict.fromkeys(one.number for one in record.ports if is_wanted(one))
        if not numbers:
            return NO_NAME
        records = [Record(name, "SRV", (number, full)) for number in numbers]
        additional = [_address_record(full, address) for address in record.addresses]
        if kind not in ("SRV", "ANY"):
            return NO_DATA
        return Answer(tuple(records), tuple(additional))
    ends = [one for one in record.endpoints if any(map(is_wanted, one.ports))]
    if not ends:
        return NO_NAME if protocol else NO_DATA
    return _pointing(name, full, ends, is_wanted) if kind in ("SRV", "ANY") else NO_DATA


def _pointing(
    name: Name,
    full: Name,
    ends: Iterable[EndpointRecord],
    is_wanted: Callable[[PortRecord], bool],
) -> Answer:
    records: dict[Record, None] = {}
    additional: dict[Record, None] = {}
    for end in ends:
        target = (_label(end), *full)
        for port in end.ports:
            if is_wanted(port):
                records[Record(name, "SRV", (port.number, target))] = None
                additional[_address_record(target, end.address)] = None
    return Answer(tuple(records), tuple(additional))


def _label(endpoint: EndpointRecord) -> str:
    """Return the label of an endpoint: its hostname, else its address with dashes."""
    return endpoint.hostname.lower() or endpoint.address.replace(".", "-").replace(":", "-")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _address_record(name: Name, address: str) -> Record:
    return Record(name, "AAAA" if ":" in address else "A", address)


def _reversed_address(name: Name) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address of a reverse name, None for any other name."""
    try:
        match name:
            case (*parts, "in-addr", "arpa") if len(parts) == 4:
                return ipaddress.IPv4Address(".".join(reversed(parts)))
            case (*parts, "ip6", "arpa") if len(parts) == 32:
                digits = "".join(reversed(parts))
                return ipaddress.IPv6Address(
                    ":".join(digits[at : at + 4] for at in range(0, 32, 4))
                )
    except ValueError:
        return None
    return None
