from __future__ import annotations

from typing import Any

import pytest

from moorage.api.pods import HostAlias
from moorage.node.config.errors import ConfigError
from moorage.node.config.security import (
    Hostname,
    host_network_hosts_file,
    hostname_of,
    hosts_file,
    kernel_hostname,
)
from tests.node.objects import a_pod

LONG = "a-name-that-is-so-long-that-no-host-could-ever-be-called-t-and-more"


@pytest.mark.parametrize(
    ("name", "spec", "wanted"),
    [
        ("web", {}, Hostname("web")),
        ("web", {"hostname": "front"}, Hostname("front")),
        ("web", {"subdomain": "db"}, Hostname("web", "db.shop.svc.cluster.local")),
        ("web", {"hostnameOverride": "a.b", "subdomain": "db"}, Hostname("a.b")),
        (LONG, {}, Hostname(LONG[:62])),
        ("a.b", {}, Hostname("a.b")),
    ],
    ids=["name", "hostname", "subdomain", "override", "cut before a hyphen", "dots"],
)
def test_hostnames(name: str, spec: dict[str, Any], wanted: Hostname) -> None:
    assert hostname_of(a_pod(name=name, **spec), "cluster.local") == wanted


@pytest.mark.parametrize(
    "spec", [{"hostname": "A_b"}, {"subdomain": "x.y"}, {"hostnameOverride": "-"}]
)
def test_a_name_that_no_host_may_have_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is not a valid DNS"):
        hostname_of(a_pod(**spec), "cluster.local")


def test_kernel_hostname_is_the_full_name_on_request() -> None:
    full = Hostname("web", "db.shop.svc.cluster.local")
    assert kernel_hostname(a_pod(), full) == "web"
    assert kernel_hostname(a_pod(setHostnameAsFQDN=True), full) == "web.db.shop.svc.cluster.local"
    assert kernel_hostname(a_pod(setHostnameAsFQDN=True), Hostname("web")) == "web"


def test_a_full_name_longer_than_the_kernel_takes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"is too long \(64 characters is the max, 70 "):
        kernel_hostname(a_pod(setHostnameAsFQDN=True), Hostname("w" * 44, "s" * 25))


def test_the_hosts_file_of_a_pod() -> None:
    aliases = [HostAlias(ip="127.0.0.1", hostnames=("foo.local", "bar.local"))]
    text = hosts_file(Hostname("web", "db.shop"), ["10.1.0.5", "fd00::5"], aliases)
    assert text == (
        "# Kubernetes-managed hosts file.\n"
        "127.0.0.1\tlocalhost\n"
        "::1\tlocalhost ip6-localhost ip6-loopback\n"
        "fe00::0\tip6-localnet\n"
        "fe00::0\tip6-mcastprefix\n"
        "fe00::1\tip6-allnodes\n"
        "fe00::2\tip6-allrouters\n"
        "10.1.0.5\tweb.db.shop\tweb\n"
        "fd00::5\tweb.db.shop\tweb\n"
        "\n# Entries added by HostAliases.\n"
        "127.0.0.1\tfoo.local\tbar.local\n"
    )


def test_the_hosts_file_on_the_nodes_network() -> None:
    text = host_network_hosts_file("127.0.0.1 localhost\n", [])
    assert text == "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("a" * 63, "a" * 63),
        ("a" * 64, "a" * 63),
        (f"{'a' * 61}-.b", "a" * 61),
        (f"{'a' * 62}xb", f"{'a' * 62}x"),
    ],
)
def test_a_long_name_is_cut_where_a_label_may_end(name: str, wanted: str) -> None:
    assert hostname_of(a_pod(name=name), "cluster.local").name == wanted
