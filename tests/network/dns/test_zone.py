"""Zone: the names of the specification, those of CoreDNS, and what does not exist."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from moorage.network.dns.records import PortRecord, ServiceRecord
from moorage.network.dns.sender import service_record
from moorage.network.dns.zone import NO_DATA, NO_NAME, Zone
from tests.network.objects import a_service, a_slice, an_endpoint

SVC = "default.svc.cluster.local"


def named(text: str) -> tuple[str, ...]:
    return tuple(text.split("."))


@pytest.fixture
def zone() -> Zone:
    one = Zone("cluster.local", "10.96.0.10", [ipaddress.ip_network("10.96.0.0/16")])
    one.set_namespace("default", is_there=True)
    ports = (PortRecord("http", "tcp", 80), PortRecord("dns", "udp", 53))
    one.set_service("default/web", ServiceRecord(("10.96.0.7", "fd00::7"), ports))
    ends = a_slice(
        {**an_endpoint("10.244.0.3"), "hostname": "db-0"}, "10.244.0.4",
        ports=({"name": "sql", "port": 5432},),
    )  # fmt: skip
    one.set_service("default/db", service_record(a_service(ip="None"), [ends]))
    one.set_service("default/empty", ServiceRecord())
    one.set_service("default/ext", ServiceRecord(external_name="Example.org."))
    return one


def records(zone: Zone, name: str, kind: str) -> list[Any]:
    return [record.data for record in zone.answer(named(name), kind).records]


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        (f"web.{SVC}", "A", ["10.96.0.7"]),
        (f"web.{SVC}", "AAAA", ["fd00::7"]),
        (f"db.{SVC}", "A", ["10.244.0.3", "10.244.0.4"]),
        (f"db-0.db.{SVC}", "A", ["10.244.0.3"]),
        (f"10-244-0-4.db.{SVC}", "A", ["10.244.0.4"]),
        (f"_http._tcp.web.{SVC}", "SRV", [(80, named(f"web.{SVC}"))]),
        (f"web.{SVC}", "SRV", [(80, named(f"web.{SVC}")), (53, named(f"web.{SVC}"))]),
        (f"_sql._tcp.db.{SVC}", "SRV",
         [(5432, named(f"db-0.db.{SVC}")), (5432, named(f"10-244-0-4.db.{SVC}"))]),
        (f"ext.{SVC}", "A", [("example", "org")]),
        ("10-1-2-3.default.pod.cluster.local", "A", ["10.1.2.3"]),
        ("fd00--1.default.pod.cluster.local", "AAAA", ["fd00::1"]),
        ("dns-version.cluster.local", "TXT", ["1.1.0"]),
        ("ns.dns.cluster.local", "A", ["10.96.0.10"]),
        ("7.0.96.10.in-addr.arpa", "PTR", [named(f"web.{SVC}")]),
        ("3.0.244.10.in-addr.arpa", "PTR", [named(f"db-0.db.{SVC}")]),
    ],
)  # fmt: skip
def test_names_that_exist(zone: Zone, name: str, kind: str, expected: list[Any]) -> None:
    assert records(zone, name, kind) == expected


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"web.{SVC}", "MX"), (f"_http._tcp.web.{SVC}", "A"), (SVC, "A"), ("cluster.local", "A"),
        ("svc.cluster.local", "A"), ("default.pod.cluster.local", "A"), (f"db.{SVC}", "AAAA"),
    ],
)  # fmt: skip
def test_names_that_exist_without_such_records(zone: Zone, name: str, kind: str) -> None:
    assert zone.answer(named(name), kind) == NO_DATA


@pytest.mark.parametrize(
    "name",
    [
        f"nope.{SVC}", "web.other.svc.cluster.local", "other.svc.cluster.local", f"x.web.{SVC}",
        f"_other._tcp.web.{SVC}", f"_http._udp.web.{SVC}", f"empty.{SVC}", f"a.b.c.d.web.{SVC}",
        "10-1-2.default.pod.cluster.local", "10-1-2-3.other.pod.cluster.local", "x.cluster.local",
        "9.0.96.10.in-addr.arpa", f"*.{SVC}", f"x.ext.{SVC}",
    ],
)  # fmt: skip
def test_names_that_do_not_exist(zone: Zone, name: str) -> None:
    assert zone.answer(named(name), "A") == NO_NAME


def test_a_service_that_points_at_pods_gives_their_addresses_too(zone: Zone) -> None:
    answer = zone.answer(named(f"_sql._tcp.db.{SVC}"), "SRV")
    assert [record.data for record in answer.additional] == ["10.244.0.3", "10.244.0.4"]


def test_ports_that_share_a_number_are_one_record(zone: Zone) -> None:
    ports = (PortRecord("dns", "udp", 53), PortRecord("dns-tcp", "tcp", 53))
    zone.set_service("default/dns", ServiceRecord(("10.96.0.9",), ports))
    assert records(zone, f"dns.{SVC}", "SRV") == [(53, named(f"dns.{SVC}"))]


def test_a_headless_service_without_ports_exists(zone: Zone) -> None:
    zone.set_service(
        "default/bare", service_record(a_service(ip="None"), [a_slice("10.244.0.8", ports=())])
    )
    assert records(zone, f"bare.{SVC}", "A") == ["10.244.0.8"]
    assert zone.answer(named(f"bare.{SVC}"), "SRV") == NO_DATA


@pytest.mark.parametrize("address", ["10.0.0.1", "fd00::1"])
def test_an_external_name_that_is_an_address_is_none(zone: Zone, address: str) -> None:
    zone.set_service("default/ext", ServiceRecord(external_name=address))
    assert zone.answer(named(f"ext.{SVC}"), "A") == NO_NAME


def test_pods_with_hostnames_have_names_by_a_service_with_an_address(zone: Zone) -> None:
    ends = a_slice({**an_endpoint("10.244.0.8"), "hostname": "web-0"}, "10.244.0.9")
    zone.set_service("default/web", service_record(a_service(ip="10.96.0.7"), [ends]))
    assert records(zone, f"web-0.web.{SVC}", "A") == ["10.244.0.8"]
    assert records(zone, f"web.{SVC}", "A") == ["10.96.0.7"]
    assert records(zone, "8.0.244.10.in-addr.arpa", "PTR") == [named(f"web-0.web.{SVC}")]
    assert zone.answer(named(f"10-244-0-9.web.{SVC}"), "A") == NO_NAME


def test_an_external_name_is_to_be_resolved_further(zone: Zone) -> None:
    assert zone.answer(named(f"ext.{SVC}"), "A").alias == ("example", "org")
    assert zone.answer(named(f"ext.{SVC}"), "CNAME").alias is None


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [
        (f"nope.{SVC}", True), ("cluster.local", True), ("example.org", False), ("local", False),
        ("9.0.96.10.in-addr.arpa", True), ("9.0.0.8.in-addr.arpa", False),
        ("3.0.244.10.in-addr.arpa", True), ("x.in-addr.arpa", False),
    ],
)  # fmt: skip
def test_which_names_are_answered_here(zone: Zone, name: str, is_ours: bool) -> None:
    assert zone.is_ours(named(name)) == is_ours


def test_what_is_gone_is_forgotten(zone: Zone) -> None:
    zone.set_service("default/web", None)
    assert zone.answer(named(f"web.{SVC}"), "A") == NO_NAME
    assert zone.answer(named("7.0.96.10.in-addr.arpa"), "PTR") == NO_NAME
    zone.keep_only(set(), {"default/db"})
    assert zone.answer(named(SVC), "A") == NO_NAME
    zone.set_namespace("default", is_there=True)
    assert records(zone, f"db-0.db.{SVC}", "A") == ["10.244.0.3"]
    assert zone.answer(named(f"ext.{SVC}"), "A") == NO_NAME


def test_records_of_a_headless_service_are_its_ready_endpoints() -> None:
    ends = a_slice("10.244.0.3", an_endpoint("10.244.0.4", ready=False))
    record = service_record(a_service(ip="None"), [ends, ends])
    assert [one.address for one in record.endpoints] == ["10.244.0.3"]
