"""The texts that every container of a pod sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.engine.oci import SandboxFiles
from moorage.engine.sandboxes.namespaces import hosts_text, remove_files, resolver_text, write_files
from moorage.wire.cri import pb


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


def test_pod_on_a_host_without_resolver_has_an_empty_file(tmp_path: Path) -> None:
    assert resolver_text(pb.PodSandboxConfig(), tmp_path / "absent") == ""


def in_ipc_namespace_of(mode: pb.NamespaceMode.ValueType) -> pb.PodSandboxConfig:
    options = pb.NamespaceOption(ipc=mode)
    security = pb.LinuxSandboxSecurityContext(namespace_options=options)
    return pb.PodSandboxConfig(linux=pb.LinuxPodSandboxConfig(security_context=security))


def test_a_sandbox_has_shared_memory_unless_it_has_the_hosts() -> None:
    assert SandboxFiles.of(Path("/s"), in_ipc_namespace_of(pb.POD)).shm == Path("/s/shm")
    assert SandboxFiles.of(Path("/s"), in_ipc_namespace_of(pb.NODE)).shm is None


@pytest.mark.parametrize(("mode", "mounted"), [(pb.POD, ["{}/shm"]), (pb.NODE, [])])
def test_only_a_sandboxs_own_shared_memory_is_mounted(
    mode: pb.NamespaceMode.ValueType,
    mounted: list[str],
    tmp_path: Path,
) -> None:
    mounts: list[str] = []

    def mount(_source: str, target: Path, *_: object) -> None:
        mounts.append(str(target))

    write_files(tmp_path / "s", in_ipc_namespace_of(mode), "web", (), mount=mount)
    assert mounts == [path.format(tmp_path / "s") for path in mounted]


def test_removal_of_missing_files_is_no_error(tmp_path: Path) -> None:
    remove_files(tmp_path / "absent")
    directory = tmp_path / "s"
    (directory / "shm").mkdir(parents=True)
    remove_files(directory)
    assert not directory.exists()
