"""Which handlers count for a cluster: its engine's, another's, or the machine's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.cli.errors import CliError
from moorage.cli.handlers import HandlersInUse, handlers_in_use
from moorage.cluster.layout import Layout
from moorage.engine.handlers import Handler
from moorage.wire.cri import engine_pb, pb
from tests.cli.moor import FakeEngine, cluster, locked, serving
from tests.fake_crio import Behaviour, FakeCrio
from tests.fake_crio import serving as serving_crio

MACHINES = (Handler(handler="kata", runtime="kata-runtime", available=True, path="/usr/bin/kata"),)


async def test_they_are_the_engines_in_order_and_none_of_this_machine(tmp_path: Path) -> None:
    async with serving_crio(FakeCrio(Behaviour()), tmp_path) as endpoint:
        layout = cluster(tmp_path, cri=endpoint)
        for _ in range(3):
            in_use = await handlers_in_use(layout, MACHINES)
            assert [handler.handler for handler in in_use.handlers] == ["", "crun", "runc", "runsc"]
            assert [handler.default for handler in in_use.handlers] == [True, False, False, False]


async def test_unreachable_engine_is_an_error(tmp_path: Path) -> None:
    layout = cluster(tmp_path, cri=f"unix://{tmp_path}/none.sock")
    with pytest.raises(CliError, match=r"none\.sock does not list its handlers"):
        await handlers_in_use(layout, MACHINES)


OWN = engine_pb.Handlers(
    handlers=[
        engine_pb.Handler(
            name="gvisor", is_default=True, is_available=True, adapter="runsc",
            program="/usr/bin/runsc", version="release-20221219.0", features=["userNamespaces"],
            file="/etc/gvisor.toml",
        ),
        engine_pb.Handler(
            name="crun", adapter="oci", program="/x/crun", version="release-20221219.0",
            reason="no", remedy="do",
        ),
    ],
    complaints=["b.toml: bad"],
)  # fmt: skip
CRUN = Handler(handler="crun", runtime="crun", available=True, path="/usr/bin/crun")
LOST = Handler(handler="lost", runtime="lost", available=False, reason="why", remedy="how")


async def reported(layout: Layout, socket: Path) -> HandlersInUse:
    """Return the handlers in use while an engine serves in a thread."""
    with locked(layout), serving(FakeEngine(handlers=OWN), socket):
        return await handlers_in_use(layout, (*MACHINES, CRUN, LOST))


async def test_an_engine_of_its_own_says_what_its_files_define(
    tmp_path: Path,
) -> None:
    layout = cluster(tmp_path, cluster_id="c")
    in_use = await reported(layout, tmp_path / "c/engine.sock")
    assert in_use.complaints == ("b.toml: bad",)
    gvisor, crun, kata, lost = in_use.handlers
    assert msgspec.structs.asdict(gvisor) == {
        **msgspec.structs.asdict(Handler(handler="gvisor", runtime="runsc")),
        "path": "/usr/bin/runsc", "version": "release-20221219.0", "available": True,
        "features": ("userNamespaces",), "default": True, "file": "/etc/gvisor.toml",
        "defect": gvisor.defect, "defect_remedy": gvisor.defect_remedy,
    }  # fmt: skip
    assert "statx" in gvisor.defect
    assert "moor runtime add" in gvisor.defect_remedy
    assert crun == Handler(
        handler="crun", runtime="crun", path="/x/crun", version="release-20221219.0", reason="no",
        remedy="do",
    )  # fmt: skip
    assert (kata.handler, kata.available) == ("kata", False)
    assert (kata.reason, kata.remedy) == (
        "it is installed, but no handler file defines it",
        "restart the cluster, which writes the file",
    )  # fmt: skip
    assert (lost.handler, lost.reason, lost.remedy) == ("lost", "why", "how")


@pytest.mark.parametrize("changes", [{"has_node": False}, {"cri": ""}])
async def test_without_an_answering_engine_the_hosts_handlers_are_used(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    layout = cluster(tmp_path, cluster_id="c", **changes)
    plain = [(handler.handler, handler.available) for handler in (*MACHINES, CRUN, LOST)]
    # The socket is another's, or the cluster has no node.
    other = tmp_path / ("c/engine.sock" if changes == {"has_node": False} else "other.sock")
    in_use = await reported(layout, other)
    assert [(handler.handler, handler.available) for handler in in_use.handlers] == plain
    assert in_use.complaints == ()


async def test_stopped_or_missing_cluster_has_the_hosts_handlers(
    tmp_path: Path,
) -> None:
    with serving(FakeEngine(handlers=OWN), tmp_path / "c/engine.sock"):
        none = await handlers_in_use(Layout(tmp_path / "none"), MACHINES)
        down = await handlers_in_use(cluster(tmp_path, cluster_id="c"), MACHINES)
    assert [handler.handler for handler in none.handlers] == ["kata"]
    assert [handler.handler for handler in down.handlers] == ["kata"]


@pytest.mark.parametrize("has_node", [True, False])
async def test_another_engine_is_asked_only_by_a_cluster_with_a_node(
    tmp_path: Path, has_node: bool
) -> None:
    features = pb.RuntimeHandlerFeatures(recursive_read_only_mounts=True)
    async with serving_crio(FakeCrio(Behaviour(handlers=["b"], features=features)), tmp_path) as at:
        layout = cluster(tmp_path, cri=at, has_node=has_node)
        handlers = (await handlers_in_use(layout, MACHINES)).handlers
    b = Handler(handler="b", runtime="", available=True, features=("recursiveReadOnlyMounts",))
    kata = Handler(**msgspec.structs.asdict(MACHINES[0]))
    assert handlers == ((b,) if has_node else (kata,))
