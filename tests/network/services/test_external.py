"""External addresses: which of the Services that name one has it."""

from __future__ import annotations

import pytest

from moorage.network.services.external import AddressPort, ExternalAddresses
from tests.network.objects import PODS, SERVICES, a_service

ADDRESS = "198.51.100.1"
PLACE = (ADDRESS, "tcp", 80)


def addresses(*hosts: AddressPort) -> ExternalAddresses:
    return ExternalAddresses([PODS, SERVICES], lambda place: place in hosts)


@pytest.mark.parametrize(
    "address",
    ["10.96.0.1", "10.244.0.5", "127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "x; y"],
)
def test_no_service_gets_an_address_of_the_cluster_or_a_special_one(address: str) -> None:
    one = addresses()
    one.claim("default/web", a_service(externalIPs=[address]))
    assert not one.has("default/web", (address, "tcp", 80))


def test_no_service_gets_what_a_program_of_the_host_has() -> None:
    one = addresses(PLACE)
    one.claim("default/web", a_service(externalIPs=[ADDRESS], ports=[{"port": 80}, {"port": 81}]))
    assert not one.has("default/web", PLACE)
    assert one.has("default/web", (ADDRESS, "tcp", 81))


def test_the_oldest_service_has_an_address_and_the_next_one_after_it() -> None:
    one = addresses()
    old = a_service(externalIPs=[ADDRESS], created="2026-01-01T00:00:00Z")
    new = a_service(externalIPs=[ADDRESS], created="2026-01-02T00:00:00Z")
    # Whichever is seen first, as after a restart.
    assert one.claim("default/new", new) == set()
    assert one.has("default/new", PLACE)
    assert one.claim("default/old", old) == {"default/new"}
    assert one.has("default/old", PLACE)
    assert not one.has("default/new", PLACE)
    assert one.claim("default/old", None) == {"default/new"}
    assert one.has("default/new", PLACE)
    assert one.claim("default/new", a_service()) == set()
    assert not one.has("default/new", PLACE)
