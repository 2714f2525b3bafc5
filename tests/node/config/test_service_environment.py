from __future__ import annotations

from typing import Any

import msgspec

from moorage.api.services import Service
from moorage.node.config.environment import service_environment, variables_of


def a_service(name: str, ip: str, *ports: dict[str, Any], namespace: str = "shop") -> Service:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"clusterIP": ip, "ports": list(ports)},
        },
        Service,
    )


KUBERNETES = a_service("kubernetes", "10.96.0.1", {"port": 443}, namespace="default")
SERVICES = [
    KUBERNETES,
    a_service("db-main", "10.96.0.2", {"port": 5432, "name": "sql"}),
    a_service("other", "10.96.0.3", {"port": 80}, namespace="elsewhere"),
    a_service("headless", "None", {"port": 80}),
    a_service("pending", "", {"port": 80}),
    a_service("portless", "10.96.0.4"),
]


def names(**options: Any) -> set[str]:
    arguments: dict[str, Any] = {"has_links": True, "overrides": {}, "namespace": "shop"} | options
    variables = service_environment(SERVICES, **arguments)
    # In which order they come makes no difference.
    assert variables == service_environment(SERVICES[::-1], **arguments)
    return {key.removesuffix("_SERVICE_HOST") for key in variables if key.endswith("_SERVICE_HOST")}


def test_services_of_the_namespace_and_the_api_servers_own() -> None:
    assert names() == {"KUBERNETES", "DB_MAIN"}
    assert names(namespace="elsewhere") == {"KUBERNETES", "OTHER"}


def test_without_links_only_the_api_servers_own() -> None:
    assert names(has_links=False) == {"KUBERNETES"}


def test_a_service_of_that_name_in_the_namespace_comes_before_it() -> None:
    own = a_service("kubernetes", "10.96.0.9", {"port": 1})
    variables = service_environment([own, KUBERNETES], "shop", has_links=True, overrides={})
    assert variables["KUBERNETES_SERVICE_HOST"] == "10.96.0.9"


def test_overrides_replace_what_is_found() -> None:
    variables = service_environment(
        SERVICES, "shop", has_links=False, overrides={"KUBERNETES_SERVICE_HOST": "192.0.2.1"}
    )
    assert variables["KUBERNETES_SERVICE_HOST"] == "192.0.2.1"
    assert variables["KUBERNETES_SERVICE_PORT"] == "443"


def test_the_variables_of_one_service() -> None:
    service = a_service(
        "db-main", "10.96.0.2", {"port": 5432, "name": "sql-main"}, {"port": 53, "protocol": "UDP"}
    )
    assert variables_of(service) == {
        "DB_MAIN_SERVICE_HOST": "10.96.0.2",
        "DB_MAIN_SERVICE_PORT": "5432",
        "DB_MAIN_SERVICE_PORT_SQL_MAIN": "5432",
        "DB_MAIN_PORT": "tcp://10.96.0.2:5432",
        "DB_MAIN_PORT_5432_TCP": "tcp://10.96.0.2:5432",
        "DB_MAIN_PORT_5432_TCP_PROTO": "tcp",
        "DB_MAIN_PORT_5432_TCP_PORT": "5432",
        "DB_MAIN_PORT_5432_TCP_ADDR": "10.96.0.2",
        "DB_MAIN_PORT_53_UDP": "udp://10.96.0.2:53",
        "DB_MAIN_PORT_53_UDP_PROTO": "udp",
        "DB_MAIN_PORT_53_UDP_PORT": "53",
        "DB_MAIN_PORT_53_UDP_ADDR": "10.96.0.2",
    }


def test_addresses_of_version_six_are_bracketed_in_urls() -> None:
    variables = variables_of(a_service("six", "fd00::1", {"port": 80}))
    assert variables["SIX_SERVICE_HOST"] == "fd00::1"
    assert variables["SIX_PORT"] == "tcp://[fd00::1]:80"
