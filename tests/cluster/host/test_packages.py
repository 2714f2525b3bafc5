"""Installing with a stand-in for apt-get on the search path."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.cluster.host import CniPlugins
from moorage.cluster.host.packages import PACKAGES, InstallError, install_packages, missing_packages
from tests.cluster.hosts import ALPINE, a_host, tools_without
from tests.cluster.programs import write_program


class FakeApt:
    """An apt-get that knows some packages, and whose `update` may fail."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.path = f"{root / 'bin'}:/usr/bin:/bin"
        self.knows(*PACKAGES)

    def knows(self, *packages: str, before_update: tuple[str, ...] | None = None) -> None:
        """Which packages there are; `before_update` while the lists are stale."""
        (self._root / "known").write_text("\n".join(packages) + "\n")
        stale = packages if before_update is None else before_update
        (self._root / "lists").write_text("\n".join(stale) + "\n")
        self._write("cp known lists")

    def fails_to_update(self) -> None:
        self._write("echo 'no network' >&2; exit 100")

    @property
    def calls(self) -> list[str]:
        log = self._root / "calls"
        return log.read_text().splitlines() if log.exists() else []

    def _write(self, update: str) -> None:
        script = f"""
cd {self._root}
if [ "$1 $2" != "-o DPkg::Lock::Timeout=300" ] || [ "$PATH" != "{self.path}" ]; then exit 2; fi
shift 2
echo "$DEBIAN_FRONTEND $*" >> calls
if [ "$1" = update ]; then {update}; exit 0; fi
shift 3
for name; do grep -qx "$name" lists || {{ echo "Unable to locate package $name" >&2; exit 100; }}
done"""
        write_program(self._root / "bin", "apt-get", script)


@pytest.fixture
def apt(tmp_path: Path) -> FakeApt:
    return FakeApt(tmp_path)


INSTALL = "noninteractive install --yes --no-install-recommends"
UPDATE = "noninteractive update"


async def test_what_is_wanted_is_installed_at_once(apt: FakeApt) -> None:
    host = a_host(path=apt.path)
    assert await install_packages(("conmon", "crun"), host) == ("conmon", "crun")
    assert apt.calls == [f"{INSTALL} conmon crun"]


async def test_nothing_is_done_for_nothing(apt: FakeApt) -> None:
    assert await install_packages((), a_host(path=apt.path, is_root=False)) == ()
    assert apt.calls == []


async def test_stale_lists_are_brought_up_to_date(apt: FakeApt) -> None:
    apt.knows(*PACKAGES, before_update=())
    assert await install_packages(("conmon",), a_host(path=apt.path)) == ("conmon",)
    assert apt.calls == [f"{INSTALL} conmon", UPDATE, f"{INSTALL} conmon"]


async def test_what_a_node_can_do_without_is_left_out(apt: FakeApt) -> None:
    apt.knows("conmon", "crun")
    wanted = ("conmon", "crun", "runsc")
    assert await install_packages(wanted, a_host(path=apt.path)) == ("conmon", "crun")


async def test_broken_package_source_does_not_prevent_installation(apt: FakeApt) -> None:
    apt.knows("conmon")
    apt.fails_to_update()
    wanted = ("conmon", "runsc")
    assert await install_packages(wanted, a_host(path=apt.path)) == ("conmon",)


async def test_without_a_network_a_machine_that_has_enough_goes_on(apt: FakeApt) -> None:
    apt.knows()
    apt.fails_to_update()
    assert await install_packages(("crun", "runsc"), a_host(path=apt.path)) == ()


async def test_unavailable_required_package_is_an_error(apt: FakeApt) -> None:
    apt.knows("crun")
    with pytest.raises(InstallError) as caught:
        await install_packages(("conmon", "crun"), a_host(path=apt.path))
    assert "Unable to locate package conmon" in str(caught.value)
    assert "run `apt-get install conmon` by hand" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"system": ALPINE},
            r"this is Alpine Linux .* conmon \(the process that stays with each container\)",
        ),
        ({"path": "/nowhere"}, "Debian and Ubuntu only"),
        ({"is_root": False}, "sudo apt-get install conmon"),
    ],
)
async def test_where_nothing_can_be_installed(
    apt: FakeApt, fields: dict[str, object], message: str
) -> None:
    with pytest.raises(InstallError, match=message):
        await install_packages(("conmon",), a_host(**({"path": apt.path} | fields)))
    assert apt.calls == []


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        ({}, ()),
        ({"tools": tools_without("skopeo")}, ("skopeo",)),
        ({"tools": tools_without("crun", "runsc")}, ("crun", "runsc")),
        ({"cni": CniPlugins(Path("/x"), frozenset({"bridge"}))}, ("containernetworking-plugins",)),
        ({"tools": {}, "cni": CniPlugins(None)}, tuple(PACKAGES)),
    ],
)
def test_what_is_missing(fields: dict[str, object], missing: tuple[str, ...]) -> None:
    assert missing_packages(a_host(**fields)) == missing
