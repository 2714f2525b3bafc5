"""Network agent: what the API says becomes rules, and pods are admitted before they run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from moorage.network.agent import NetworkAgent, NetworkRefusedError
from moorage.network.frame import IPV4
from moorage.network.objects import ENDPOINT_SLICES, NETWORK_POLICIES, PODS
from moorage.network.services.stale_flows import Flow, PodFlows, flows_of
from moorage.wire.client.resources import NAMESPACES, RUNTIME_CLASSES, SERVICES
from moorage.wire.client.rest import UnreachableError
from tests.controllers.memory import World
from tests.network.kernel import FakeKernel
from tests.network.objects import PODS as POD_NETWORK
from tests.network.objects import SERVICES as SERVICE_NETWORK
from tests.network.objects import a_policy, a_service, a_slice

DENY: dict[str, Any] = {"podSelector": {"matchLabels": {"app": "a"}}, "ingress": []}


def a_pod(name: str, address: str, phase: str = "Running", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "a"}},
        "spec": {"nodeName": "n1", **spec},
        "status": {"phase": phase, "podIPs": [{"ip": address}]},
    }


class Running:
    """An agent beside an API in memory; `kernel` keeps its scripts."""

    def __init__(self) -> None:
        self.world = World()
        self.kernel = FakeKernel()
        self.links = {"10.244.0.3": "veth3", "10.244.0.4": "veth4"}
        self.deleted: list[Flow | PodFlows] = []
        self.with_flows: list[str] = []
        self.agent = NetworkAgent(
            self.world.client,
            self.kernel,
            cluster_id="0a1b2c3d",
            node="n1",
            networks={IPV4: (POD_NETWORK, SERVICE_NETWORK)},
            clock=self.world.clock,
            delete_flows=self.delete_flows,
            addresses_with_flows=self.addresses_with_flows,
            is_hosts=lambda _: False,
            links=lambda: self.links,
        )

    async def delete_flows(self, flows: Iterable[Flow | PodFlows]) -> None:
        self.deleted += flows

    async def addresses_with_flows(self) -> Iterable[str]:
        return self.with_flows

    async def scripts(self) -> str:
        """Return what was run since the last call, once all is done that can be."""
        await self.world.settled(1)
        text = "".join(self.kernel.scripts)
        self.kernel.scripts.clear()
        return text


@asynccontextmanager
async def running(*objects: tuple[Any, Any]) -> AsyncIterator[Running]:
    one = Running()
    one.world.client.put(NAMESPACES, {"metadata": {"name": "default"}})
    for resource, obj in objects:
        one.world.client.put(resource, obj)
    async with one.world.running(one.agent.run()):
        yield one


async def test_the_first_script_has_everything() -> None:
    async with running(
        (SERVICES, a_service()), (ENDPOINT_SLICES, a_slice("10.244.0.3")),
        (NETWORK_POLICIES, a_policy(**DENY)), (PODS, a_pod("a", "10.244.0.3")),
    ) as one:  # fmt: skip
        script = await one.scripts()
        assert script.startswith("add table ip moorage-0a1b2c3d\ndelete table")
        assert "{ 10.96.0.7 . tcp . 80 : goto pick-tcp-1 }" in script
        assert "ingress { 10.244.0.3 : goto ingress-" in script
        # One of IPv4, and one that keeps pods off IPv6.
        assert script.count("add table") == 2


async def test_changes_touch_what_changed() -> None:
    async with running((SERVICES, a_service()), (SERVICES, a_service("b", "10.96.0.8"))) as one:
        await one.scripts()
        one.world.client.put(ENDPOINT_SLICES, a_slice("10.244.0.3"))
        script = await one.scripts()
        assert "10.96.0.7 . tcp . 80 : goto pick-tcp-1" in script
        assert "10.96.0.8" not in script
        one.world.client.drop(ENDPOINT_SLICES, "web-x")
        assert "no-endpoints { 10.96.0.7 . tcp . 80 : jump refuse }" in await one.scripts()
        one.world.client.drop(SERVICES, "web")
        assert "delete element" in await one.scripts()


async def test_clients_of_udp_leave_an_endpoint_that_is_gone() -> None:
    ports = ({"port": 53, "protocol": "UDP"},)
    spec: dict[str, Any] = {
        "type": "NodePort",
        "ports": [{"port": 53, "protocol": "UDP", "nodePort": 30053}],
    }
    async with running((SERVICES, a_service(**spec))) as one:
        one.world.client.put(ENDPOINT_SLICES, a_slice("10.244.0.3", "10.244.0.4", ports=ports))
        await one.scripts()
        one.world.client.put(ENDPOINT_SLICES, a_slice("10.244.0.4", ports=ports))
        await one.scripts()
        assert one.deleted == [
            Flow("", "30053", "10.244.0.3"), Flow("10.96.0.7", "53", "10.244.0.3"),
        ]  # fmt: skip


async def test_a_pod_is_admitted_with_its_rules() -> None:
    async with running((NETWORK_POLICIES, a_policy(**DENY))) as one:
        await one.scripts()
        await one.agent.admit("u1", "default", {"app": "a"}, ["10.244.0.3"])
        admitted = "".join(one.kernel.scripts)
        assert "ingress { 10.244.0.3 : goto ingress-" in admitted
        one.kernel.scripts.clear()
        await one.agent.admit("u1", "default", {"app": "a"}, ["10.244.0.3"])
        assert one.kernel.scripts == []
        one.agent.release("u1")
        assert "delete element ip moorage-0a1b2c3d ingress { 10.244.0.3 }" in await one.scripts()


async def test_a_pods_link_is_held_to_its_address_in_both_families() -> None:
    async with running() as one:
        await one.scripts()
        one.links["10.244.0.5"] = "veth5"
        one.links["192.0.2.7"] = "eth7"
        await one.agent.admit("u1", "default", {}, ["10.244.0.5"])
        admitted = "".join(one.kernel.scripts)
        for family in ("ip", "ip6"):
            assert f'add element {family} moorage-0a1b2c3d pod-links {{ "veth5" }}' in admitted
        assert "eth7" not in admitted
        # A pod deleted by force runs on for a while: its link is held until it is gone.
        one.kernel.scripts.clear()
        one.agent.release("u1")
        assert "pod-links" not in await one.scripts()
        del one.links["10.244.0.5"]
        await one.world.settled(10)
        assert 'delete element ip moorage-0a1b2c3d pod-links { "veth5" }' in await one.scripts()


async def test_a_pod_without_a_link_is_not_admitted() -> None:
    async with running() as one:
        await one.scripts()
        with pytest.raises(NetworkRefusedError, match="no link leads to"):
            await one.agent.admit("u1", "default", {}, ["10.244.0.77"])


async def test_a_pod_is_not_admitted_before_the_rules_are_written() -> None:
    one = Running()
    admission = asyncio.ensure_future(one.agent.admit("u1", "default", {}, ["10.244.0.3"]))
    await one.world.settled(1)
    assert not admission.done()
    async with one.world.running(one.agent.run()):
        async with asyncio.timeout(20):
            await admission
        assert "10.244.0.3 : return" in await one.scripts()


async def test_a_pod_whose_rules_the_kernel_refuses_is_not_admitted() -> None:
    async with running() as one:
        await one.scripts()
        one.kernel.refuses_scripts_with = "10.244.0.3"
        with pytest.raises(NetworkRefusedError, match="no space"):
            await one.agent.admit("u1", "default", {}, ["10.244.0.3"])
        # Others are, meanwhile.
        await one.agent.admit("u2", "default", {}, ["10.244.0.4"])
        assert "10.244.0.4 : return" in one.kernel.scripts[-1]
        one.kernel.refuses_scripts_with = ""
        await one.agent.admit("u1", "default", {}, ["10.244.0.3"])
        assert "10.244.0.3 : return" in one.kernel.scripts[-1]


async def test_the_status_of_an_earlier_pod_does_not_take_an_admitted_address() -> None:
    async with running((PODS, a_pod("old", "10.244.0.3"))) as one:
        await one.scripts()
        await one.agent.admit("new", "default", {"app": "b"}, ["10.244.0.3"])
        one.kernel.scripts.clear()
        late = a_pod("old", "10.244.0.3")
        late["metadata"]["labels"]["late"] = "yes"
        one.world.client.put(PODS, late)
        assert await one.scripts() == ""
        one.world.client.drop(PODS, "old")
        assert await one.scripts() == ""


@pytest.mark.parametrize("change", [{"phase": "Succeeded"}, {"hostNetwork": True}])
async def test_pods_without_an_address_of_their_own_have_no_rules(change: dict[str, Any]) -> None:
    async with running((PODS, a_pod("a", "10.244.0.3", **change))) as one:
        assert "10.244.0.3" not in await one.scripts()


async def test_labels_of_a_running_pod_count_when_they_change() -> None:
    async with running((NETWORK_POLICIES, a_policy(**DENY))) as one:
        await one.agent.admit("a", "default", {"app": "a"}, ["10.244.0.3"])
        await one.scripts()
        changed = a_pod("a", "10.244.0.3")
        changed["metadata"]["labels"] = {"app": "other"}
        one.world.client.put(PODS, changed)
        assert "ingress { 10.244.0.3 : return }" in await one.scripts()


async def test_a_table_that_was_removed_is_written_again() -> None:
    async with running() as one:
        await one.scripts()
        one.kernel.numbers = ()
        assert await one.scripts() == ""
        one.agent.rules_touched()
        assert "add table ip moorage-0a1b2c3d" in await one.scripts()
        one.kernel.numbers = (3,)
        await one.world.settled(10)
        assert "add table ip moorage-0a1b2c3d" in await one.scripts()


CLASS = {"metadata": {"name": "shut", "annotations": {"runtime.moorage.dev/network": "none"}}}


async def test_a_pods_class_shuts_its_network_and_may_open_it_again() -> None:
    async with running((RUNTIME_CLASSES, CLASS)) as one:
        await one.agent.admit("u1", "default", {}, ["10.244.0.3"], runtime_class="shut")
        assert "egress { 10.244.0.3 : goto egress-" in await one.scripts()
        one.world.client.put(RUNTIME_CLASSES, {"metadata": {"name": "shut"}})
        assert "egress { 10.244.0.3 : return }" in await one.scripts()


async def test_a_pod_of_an_unknown_class_waits_and_one_that_runs_goes_on() -> None:
    running_pod = a_pod("old", "10.244.0.4", runtimeClassName="gone")
    async with running((PODS, running_pod)) as one:
        with pytest.raises(NetworkRefusedError, match='RuntimeClass "gone" is not known yet'):
            await one.agent.admit("new", "default", {}, ["10.244.0.3"], runtime_class="gone")
        await one.agent.admit("old", "default", {}, ["10.244.0.4"], runtime_class="gone")


async def test_a_class_that_is_deleted_stays_shut_for_its_pods() -> None:
    async with running((RUNTIME_CLASSES, CLASS)) as one:
        await one.agent.admit("u1", "default", {}, ["10.244.0.3"], runtime_class="shut")
        await one.scripts()
        one.world.client.drop(RUNTIME_CLASSES, "shut")
        assert await one.scripts() == ""


async def test_a_service_takes_no_address_of_another() -> None:
    """With three endpoints it would have got two of three connections to the victim's address."""
    victim = a_service("victim", "10.96.0.7", externalIPs=["198.51.100.1"], created="2026-01-02")
    later = a_service(
        "web", "10.96.0.8", externalIPs=["10.96.0.7", "198.51.100.1"], created="2026-01-03"
    )
    ends = ["10.244.0.7", "10.244.0.8", "10.244.0.9"]
    async with running((SERVICES, later), (ENDPOINT_SLICES, a_slice(*ends))) as one:
        assert "198.51.100.1 . tcp . 80 : goto pick-tcp-3" in await one.scripts()
        one.world.client.put(SERVICES, victim)
        one.world.client.put(ENDPOINT_SLICES, a_slice("10.244.0.3", service="victim"))
        script = await one.scripts()
        assert "198.51.100.1 . tcp . 80 : goto pick-tcp-1" in script
        assert "198.51.100.1 . 80 . 0 : 10.244.0.3 . 8080" in script
        one.world.client.put(ENDPOINT_SLICES, a_slice("10.244.0.3", "10.244.0.4", service="victim"))
        script = await one.scripts()
        assert "10.96.0.7 . 80 . 1 : 10.244.0.4 . 8080" in script
        assert "198.51.100.1 . 80 . 1 : 10.244.0.4 . 8080" in script
        one.world.client.drop(SERVICES, "victim")
        assert "198.51.100.1 . tcp . 80 : goto pick-tcp-3" in await one.scripts()


async def test_a_pod_inherits_no_connection_of_its_address() -> None:
    async with running() as one:
        await one.agent.admit("old", "default", {}, ["10.244.0.3"])
        await one.scripts()
        assert one.deleted == []
        one.agent.release("old")
        await one.scripts()
        assert one.deleted == [*flows_of("10.244.0.3")]
        await one.agent.admit("next", "default", {}, ["10.244.0.3"])
        assert len(one.deleted) == 2
        # The engine gave the address again before the API said that the pod is gone.
        await one.agent.admit("last", "default", {}, ["10.244.0.3"])
        assert len(one.deleted) == 4


async def test_a_pod_inherits_no_connection_from_before_the_agent() -> None:
    one = Running()
    one.with_flows = ["10.244.0.1", "10.244.0.3", "10.244.0.4", "192.0.2.9"]
    one.world.client.put(PODS, a_pod("a", "10.244.0.4"))
    async with one.world.running(one.agent.run()):
        await one.scripts()
        assert one.deleted == [*flows_of("10.244.0.3")]


async def test_a_policy_written_before_a_pod_starts_is_in_force_when_it_does() -> None:
    """The pod's own watch may be ahead of that of policies."""
    async with running() as one:
        await one.scripts()
        policy = msgspec.to_builtins(a_policy(**DENY))
        policy["metadata"]["resourceVersion"] = "7"
        one.world.client.put_unseen(NETWORK_POLICIES, policy)
        admission = asyncio.ensure_future(
            one.agent.admit("u1", "default", {"app": "a"}, ["10.244.0.3"])
        )
        assert await one.scripts() == ""
        one.world.client.send(NETWORK_POLICIES, "ADDED", policy)
        await one.world.settled(1)
        await admission
        assert "ingress { 10.244.0.3 : goto ingress-" in await one.scripts()


async def test_without_its_policies_a_pod_is_not_admitted() -> None:
    async with running() as one:
        await one.scripts()
        one.world.client.failures.append(("list", "networkpolicies", UnreachableError("away")))
        with pytest.raises(NetworkRefusedError, match="cannot be read: away"):
            await one.agent.admit("u1", "default", {"app": "a"}, ["10.244.0.3"])
