"""The texts that every container of a pod sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.cri import pb
from moorage.engine.oci import SandboxFiles
from moorage.engine.sandboxes.files import hosts_text, remove_files, resolver_text


def test_the_hosts_file_names_the_pod_by_every_address() -> None:
    lines = hosts_text("web", ("10.0.0.2", "fd00::2"), is_on_host=False).splitlines()
    assert lines[0] == "127.0.0.1\tlocalhost"
    assert lines[-2:] == ["10.0.0.2\tweb", "fd00::2\tweb"]


def test_the_hosts_file_of_a_pod_without_a_name_has_only_the_usual() -> None:
    assert hosts_text("", ("10.0.0.2",), is_on_host=False) == hosts_text("x", (), is_on_host=False)


def test_a_pod_on_the_hosts_network_has_the_hosts_file() -> None:
    assert hosts_text("web", (), is_on_host=True) == Path("/etc/hosts").read_text()


@pytest.mark.parametrize(
    ("dns", "text"),
    [
        (
            pb.DNSConfig(
                servers=["10.0.0.10", "10.0.0.11"], searches=["a.b", "c"], options=["ndots:5"]
            ),
            "search a.b c\nnameserver 10.0.0.10\nnameserver 10.0.0.11\noptions ndots:5\n",
        ),
        (pb.DNSConfig(servers=["10.0.0.10"]), "nameserver 10.0.0.10\n"),
        (pb.DNSConfig(searches=["a", "b"]), "search a b\n"),
    ],
)
def test_the_resolver_is_as_asked(dns: pb.DNSConfig, text: str) -> None:
    assert resolver_text(pb.PodSandboxConfig(dns_config=dns)) == text


def test_a_pod_without_a_wish_has_the_hosts_resolver() -> None:
    assert resolver_text(pb.PodSandboxConfig()) == Path("/etc/resolv.conf").read_text()


def test_shared_memory_is_the_pods_own_unless_it_is_the_hosts() -> None:
    options = pb.NamespaceOption(ipc=pb.NODE)
    security = pb.LinuxSandboxSecurityContext(namespace_options=options)
    on_host = pb.PodSandboxConfig(linux=pb.LinuxPodSandboxConfig(security_context=security))
    assert SandboxFiles.of(Path("/s"), pb.PodSandboxConfig()).shm == Path("/s/shm")
    assert SandboxFiles.of(Path("/s"), on_host).shm == Path("/dev/shm")


def test_removing_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    remove_files(tmp_path / "absent")
    directory = tmp_path / "s"
    (directory / "shm").mkdir(parents=True)
    remove_files(directory)
    assert not directory.exists()
