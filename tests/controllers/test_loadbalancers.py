"""Load balancers on one machine: who gets an address, and why another does not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from moorage.controllers.loadbalancers import LoadBalancerController
from moorage.wire.client.resources import SERVICES
from tests.controllers.memory import World

NODE = "192.0.2.1"


class Balanced:
    """The controller beside an API in memory; `listening` are ports that programs have."""

    def __init__(self) -> None:
        self.world = World()
        self.listening: set[tuple[str, int]] = set()

    @asynccontextmanager
    async def running(self, *addresses: str) -> AsyncIterator[None]:
        world = self.world
        controller = LoadBalancerController(
            world.client, world.informers, world.recorder, world.clock, addresses or (NODE,),
            lambda _, port: port in self.listening,
        )  # fmt: skip
        async with world.running(controller.run()):
            yield

    def put(self, name: str, port: int = 80, **spec: Any) -> None:
        body = {"type": "LoadBalancer", "ports": [{"port": port, "protocol": "TCP"}], **spec}
        status = body.pop("status", {})
        metadata = {"name": name, "namespace": "default"}
        self.world.client.put(SERVICES, {"metadata": metadata, "spec": body, "status": status})

    async def ingress(self, name: str) -> Any:
        await self.world.settled(1)
        status = self.world.client.find(SERVICES, name)["status"]
        return (status.get("loadBalancer") or {}).get("ingress")

    def events(self) -> list[tuple[str, str]]:
        return [(name, f"{reason}: {text}") for name, _, reason, text in self.world.client.events]


async def test_a_service_gets_the_nodes_address() -> None:
    one = Balanced()
    async with one.running():
        one.put("a")
        assert await one.ingress("a") == [{"ip": NODE, "ipMode": "VIP"}]
        assert one.events() == [("a", "EnsuredLoadBalancer: Ensured load balancer")]
        one.put("cluster", type="ClusterIP")
        one.put("others", loadBalancerClass="example.org/x")
        assert (await one.ingress("cluster"), await one.ingress("others")) == (None, None)


async def test_a_port_is_one_services_until_it_goes() -> None:
    one = Balanced()
    async with one.running():
        one.put("a")
        await one.ingress("a")
        one.put("b")
        one.put("c", port=81)
        assert await one.ingress("c") is not None
        assert await one.ingress("b") is None
        refused = dict(one.events())["b"]
        assert refused == (
            "SyncLoadBalancerFailed: Error syncing load balancer: port 80/TCP of 192.0.2.1 belongs "
            "to Service default/a; use another port, or remove what has it"
        )
        one.world.client.drop(SERVICES, "a")
        assert await one.ingress("b") == [{"ip": NODE, "ipMode": "VIP"}]


async def test_a_port_of_the_host_is_not_taken_from_it() -> None:
    one = Balanced()
    one.listening = {("TCP", 22)}
    async with one.running():
        one.put("a", port=22)
        assert await one.ingress("a") is None
        ((_, text),) = one.events()
        assert "a program of the host listens on port 22/TCP of 192.0.2.1" in text
        one.listening = set()
        await one.world.settled(30)
        assert await one.ingress("a") is not None


async def test_a_service_that_is_no_load_balancer_any_more_loses_the_address() -> None:
    one = Balanced()
    async with one.running():
        one.put("a")
        await one.ingress("a")
        one.put("b")
        status = {"loadBalancer": {"ingress": [{"ip": NODE, "ipMode": "VIP"}]}}
        one.put("a", type="ClusterIP", status=status)
        assert not await one.ingress("a")
        assert await one.ingress("b") is not None


async def test_what_a_service_had_before_a_restart_it_keeps() -> None:
    one = Balanced()
    status = {"loadBalancer": {"ingress": [{"ip": NODE, "ipMode": "VIP"}]}}
    one.put("a")
    one.put("b", status=status)
    async with one.running():
        assert await one.ingress("b") == status["loadBalancer"]["ingress"]
        assert await one.ingress("a") is None


async def test_a_requested_address_is_given_if_it_is_one_of_ours() -> None:
    one = Balanced()
    async with one.running(NODE, "192.0.2.5"):
        one.put("a", loadBalancerIP="192.0.2.5")
        one.put("b", loadBalancerIP="198.51.100.1")
        assert await one.ingress("a") == [{"ip": "192.0.2.5", "ipMode": "VIP"}]
        assert await one.ingress("b") is None
        # The other address has the port still.
        one.put("c")
        assert await one.ingress("c") == [{"ip": NODE, "ipMode": "VIP"}]
