"""Stale flows: what connection tracking keeps of endpoints and pods that are gone.

A connection of TCP ends with its endpoint; a client of UDP that goes on sending keeps its entry of
connection tracking, and with it the old translation. Such entries are deleted by conntrack(8), so
that the next datagram gets another endpoint. Source: kube-proxy `conntrack/cleanup.go`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from moorage.api.logs import Log
from moorage.linux.command import CommandError, run
from moorage.network.frame import endpoints_of, node_endpoints_of
from moorage.network.tables import Fragment

_PROGRAM: Final = "conntrack"
_ADDRESS: Final = re.compile(r"\b(?:src|dst)=([0-9a-f.:]+)")
_NOTHING_DELETED: Final = b"0 flow entries"

log = Log(__name__)


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """Flows of UDP to a port, of one address or of any of the node's, that go to an endpoint."""

    address: str
    port: str
    endpoint: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of conntrack(8) that delete them."""
        address = ("--orig-dst", self.address) if self.address else ()
        port = ("--orig-port-dst", self.port)
        return ("-D", "-p", "udp", *address, *port, "--dst-nat", self.endpoint)


@dataclass(frozen=True, slots=True, order=True)
class PodFlows:
    """Flows of any protocol that a pod began, or that were sent to it."""

    endpoint: str
    is_client: bool

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("-D", "--orig-src" if self.is_client else "--reply-src", self.endpoint)


def flows_of(address: str) -> tuple[PodFlows, ...]:
    """Return all flows of a pod's address."""
    return PodFlows(address, True), PodFlows(address, False)


async def addresses_with_flows() -> frozenset[str]:
    """Return the addresses that have flows, empty without conntrack(8)."""
    try:
        answer = await run([_PROGRAM, "-L"])
    except CommandError as error:
        log.warning("flows of pods that are gone stay", reason=error)
        return frozenset()
    return frozenset(_ADDRESS.findall(answer.text))


def stale_flows(before: Fragment, after: Fragment) -> list[Flow]:
    """Return the flows of endpoints that a Service had before a change, and has no more."""
    return sorted(_flows(before) - _flows(after))


async def delete_flows(flows: Iterable[Flow | PodFlows]) -> None:
    """Delete flows from connection tracking. Logs a failure: they end by themselves, later."""
    for flow in flows:
        try:
            answer = await run([_PROGRAM, *flow.arguments])
        except CommandError as error:
            log.warning("flows stay with an endpoint that is gone", reason=error)
            return
        if not answer.is_success and _NOTHING_DELETED not in answer.output + answer.error:
            log.warning("flows stay", endpoint=flow.endpoint, reason=answer.complaint)


def _flows(fragment: Fragment) -> set[Flow]:
    addresses: Mapping[str, str] = fragment.elements.get(endpoints_of("udp"), {})
    ports: Mapping[str, str] = fragment.elements.get(node_endpoints_of("udp"), {})
    flows = set()
    for place, target in (*addresses.items(), *((f" . {one}", to) for one, to in ports.items())):
        address, port = place.split(" . ")[:2]
        flows.add(Flow(address.strip(), port, target.split(" . ")[0]))
    return flows
