"""Programs on a search path of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.cluster.host import tools
from moorage.cluster.host.tools import CNI_NEEDED, check_firewall, find_cni, find_tools
from tests.cluster.programs import write_program


@pytest.mark.parametrize(
    ("script", "version", "complaint"),
    [
        ("echo conmon version 2.1.12; echo commit: 0a1b2c", "2.1.12", ""),
        ("echo 'ip utility, iproute2-6.15.0, libbpf 1.5.0'", "6.15.0", ""),
        ("echo 'catatonit 0.2.1' >&2", "0.2.1", ""),
        ("echo gibberish", "", "gibberish"),
        ("echo broken library >&2; exit 127", "", "broken library"),
        ("exit 3", "", "exit status 3"),
        ("printf '\\377\\376'; exit 1", "", "��"),
        ("printf '\\377\\376' >&2; exit 1", "", "��"),
    ],
)
async def test_versions(tmp_path: Path, script: str, version: str, complaint: str) -> None:
    program = write_program(tmp_path, "conmon", script)
    programs = await find_tools(str(tmp_path))
    assert programs["conmon"] == tools.Tool(program, version, complaint)


async def test_a_program_that_never_answers_is_a_tool_without_version(tmp_path: Path) -> None:
    write_program(tmp_path, "runc", "sleep 60")
    programs = await find_tools(str(tmp_path), 0.05)
    assert programs["runc"].version == ""
    assert "no answer" in programs["runc"].complaint


async def test_what_is_not_there_or_no_program_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "runc").write_text("not executable")
    assert await find_tools(str(tmp_path)) == {}
    assert await find_tools("") == {}


async def test_a_file_that_cannot_be_executed_has_a_complaint(tmp_path: Path) -> None:
    program = tmp_path / "crun"
    program.write_bytes(b"\x7fELFnonsense")
    program.chmod(0o755)
    assert "format" in (await find_tools(str(tmp_path)))["crun"].complaint.lower()


def test_where_network_plugins_are_looked_for() -> None:
    assert tuple(map(str, tools.CNI_DIRECTORIES)) == (
        "/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"
    )  # fmt: skip
    assert CNI_NEEDED == ("bandwidth", "host-local", "loopback", "portmap", "ptp")


async def test_each_tool_is_asked_for_its_version_in_its_way(tmp_path: Path) -> None:
    for name in tools.TOOLS:
        write_program(tmp_path, name, 'echo "1.0.$#" $1')
    versions = await find_tools(str(tmp_path))
    asked = {name: tuple(arguments) for name, arguments in tools.TOOLS.items()}
    assert asked == dict.fromkeys(
        ("conmon", "skopeo", "runc", "crun", "runsc", "iptables", "nft", "conntrack", "catatonit"),
        ("--version",),
    ) | {"ip": ("-V",), "busybox": ()}
    for name, tool in versions.items():
        assert tool == tools.Tool(tmp_path / name, f"1.0.{len(asked[name])}")


def test_the_directory_with_most_plugins_is_taken(tmp_path: Path) -> None:
    empty, some, full = (tmp_path / name for name in ("empty", "some", "full"))
    for directory, names in ((empty, ()), (some, CNI_NEEDED[:2]), (full, CNI_NEEDED)):
        directory.mkdir()
        for name in names:
            (directory / name).touch()
    assert find_cni((tmp_path / "absent", empty, some, full)).directory == full
    assert find_cni((empty, some)).missing == CNI_NEEDED[2:]
    assert find_cni((tmp_path / "absent",)).directory is None
    assert find_cni(()).missing == CNI_NEEDED


@pytest.mark.parametrize(
    ("script", "is_usable", "complaint"),
    [
        ('[ "$*" = "-w 2 -t nat -S POSTROUTING" ]', True, ""),
        ("echo 'Permission denied (you must be root)' >&2; exit 4", False, "Permission denied"),
        ('echo "can\'t initialize iptables table nat" >&2; exit 3', False, "can't initialize"),
        (None, False, "not on PATH"),
    ],
)
async def test_the_firewall_is_tried(
    tmp_path: Path, script: str | None, is_usable: bool, complaint: str
) -> None:
    if script is not None:
        write_program(tmp_path, "iptables", script)
    firewall = await check_firewall(str(tmp_path))
    assert firewall.is_usable == is_usable
    assert complaint in firewall.complaint
