"""`moor runtimes`: which handlers are listed, in which columns, and what is said below each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moorage.api.meta import Condition
from moorage.api.runtime_group import (
    WORKING,
    ProfileFeature,
    RuntimeProfile,
    RuntimeProfileSpec,
    RuntimeProfileStatus,
)
from moorage.attach.outcome import NodeOutcome, Outcome
from moorage.cli.commands import runtimes
from moorage.cli.connection import Target
from moorage.cluster.host import Inventory
from moorage.cluster.layout import Layout
from moorage.cluster.settings import load
from moorage.engine.handlers import Handler
from moorage.wire.cri import engine_pb
from tests.cli.moor import FakeEngine, change, cluster, locked, moor, serving
from tests.cluster.hosts import a_host
from tests.fake_crio import Behaviour, FakeCrio, serving_apart

FOUND = (
    Handler(handler="runc", runtime="runc", available=True, path="/usr/bin/runc", version="1.1"),
    Handler(handler="kata", runtime="kata", available=False, reason="no KVM", remedy="turn it on"),
    Handler(
        handler="old", runtime="old", available=False, path="/usr/bin/old", reason="too old",
        defect="hangs", defect_remedy="wait",
    ),
)  # fmt: skip


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The machine has FOUND; the clusters for which it was looked at."""
    looks = []

    async def look(layout: Layout) -> tuple[Inventory, tuple[Handler, ...]]:
        looks.append(layout.root)
        return a_host(), FOUND

    monkeypatch.setattr(runtimes, "inspect_machine", look)
    return looks


def test_without_a_cluster_the_hosts_handlers_are_listed_with_reasons(
    looks: list[Path], tmp_path: Path
) -> None:
    listed = [
        "HANDLER   RUNTIME   VERSION   AVAILABLE   FEATURES",
        "runc      runc      1.1       yes         -",
    ]
    old = [
        "old       old       -         no          -",
        "    too old",
        "    hangs → wait",
    ]
    kata = [
        "kata      kata      -         no          -",
        "    no KVM → turn it on",
    ]
    assert moor("runtimes", "--data-dir", tmp_path).out.splitlines() == [*listed, *old]
    output = moor("runtimes", "--all", "--data-dir", tmp_path).out
    assert output.splitlines() == [*listed, *kata, *old]
    assert looks == [tmp_path, tmp_path]
    rows = json.loads(moor("runtimes", "--all", "-o", "json", "--data-dir", tmp_path).out)
    assert [row["handler"] for row in rows] == ["runc", "kata", "old"]
    assert rows[1]["remedy"] == "turn it on"


def test_of_a_running_cluster_the_engines_with_their_files_and_complaints(
    looks: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorage.cluster.engine.paths.RUN", tmp_path)
    layout = cluster(tmp_path, cluster_id="c")
    reported = engine_pb.Handlers(
        handlers=[
            engine_pb.Handler(
                name="runc", is_default=True, is_available=True, program="/opt/runc.new",
                version="1.9", features=["userNamespaces"], file="/etc/runc.toml",
            )
        ],
        complaints=["b.toml: no binary"],
    )  # fmt: skip
    with serving(FakeEngine(handlers=reported), tmp_path / "c/engine.sock"), locked(layout):
        answer = moor("runtimes", "--all", "--data-dir", layout.root)
    assert answer.err == "broken: b.toml: no binary\n"
    assert answer.out.splitlines() == [
        "HANDLER   RUNTIME    VERSION   DEFAULT   AVAILABLE   FEATURES",
        "runc      runc.new   1.9       yes       yes         userNamespaces",
        "    /etc/runc.toml",
        "kata      kata       -         no        no          -",
        "    no KVM → turn it on",
        "old       old        -         no        no          -",
        "    too old",
        "    hangs → wait",
    ]
    assert looks == [layout.root]


FAILS = RuntimeProfileStatus(
    conditions=(Condition(type=WORKING, status="False", message="no kernel; set path"),)
)


def test_a_handler_whose_probe_fails_is_not_available(
    looks: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(target: Target) -> tuple[RuntimeProfile, ...]:
        del target
        return tuple(
            RuntimeProfile(spec=RuntimeProfileSpec(node_name=node, handler=handler), status=FAILS)
            for node, handler in ((load(layout.settings).node_name, "kata"), ("other", "runc"))  # type: ignore[union-attr]
        )

    monkeypatch.setattr("moorage.cluster.engine.paths.RUN", tmp_path)
    monkeypatch.setattr(runtimes, "_profiles", read)
    layout = cluster(tmp_path, cluster_id="c")
    handlers = [
        engine_pb.Handler(name=name, is_available=True, program=f"/{name}")
        for name in ("runc", "kata")
    ]
    reported = engine_pb.Handlers(handlers=handlers)
    with serving(FakeEngine(handlers=reported), tmp_path / "c/engine.sock"), locked(layout):
        answer = moor("runtimes", "-o", "json", "--data-dir", layout.root)
    by_name = {row["handler"]: row for row in json.loads(answer.out)}
    assert (by_name["runc"]["available"], by_name["runc"]["reason"]) == (True, "")
    assert by_name["kata"]["available"] is False
    assert by_name["kata"]["reason"] == "its probe fails: no kernel; set path"
    assert looks == [layout.root]


def test_of_another_engine_those_that_it_lists_alone(looks: list[Path], tmp_path: Path) -> None:
    layout = cluster(tmp_path)
    with serving_apart(FakeCrio(Behaviour(handlers=["", "b"])), tmp_path) as endpoint:
        change(layout, cri=endpoint)
        answer = moor("runtimes", "--data-dir", layout.root)
        assert answer.out.splitlines() == [
            "HANDLER   DEFAULT   AVAILABLE   FEATURES",
            "-         yes       yes         -",
            "b         no        yes         -",
        ]
        assert looks == []
        change(layout, cri=endpoint, has_node=False)
        assert "runc" in moor("runtimes", "--data-dir", layout.root).out
        assert looks == [layout.root]


def test_of_another_kubernetes_those_that_its_nodes_report(
    looks: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def report(target: Target) -> Outcome:
        asked.append((target.kubeconfigs, target.context))
        return Outcome(
            nodes=(
                NodeOutcome(
                    "n1", "containerd://2.4.2", {"runc": "shared-kernel"}, {"kata": "hangs"}
                ),
                NodeOutcome("n2", "cri-o://1.37", problem="no agent runs there", remedy="start it"),
            ),
            classes={"kata": ("kata",), "runc": ("native", "runc")},
        )

    monkeypatch.setattr(runtimes, "_outcome", report)
    file = tmp_path / "other.kubeconfig"
    file.touch()
    answer = moor("runtimes", "--kubeconfig", file, "--context", "c")
    assert answer.out.splitlines() == [
        "NODE   ENGINE               WORKS                  DOES NOT WORK",
        "n1     containerd://2.4.2   runc (shared-kernel)   kata",
        "    kata: hangs",
        "n2     cri-o://1.37         -                      -",
        "    no agent runs there: start it",
        "handler runc: runtimeClassName native, runc",
    ]
    monkeypatch.setenv("KUBECONFIG", str(file))
    document = json.loads(moor("runtimes", "-o", "json").out)
    assert [node["node"] for node in document["nodes"]] == ["n1", "n2"]
    assert asked == [((file,), "c"), ((file,), None)]
    assert looks == []
    moor("runtimes", "--data-dir", tmp_path)
    assert looks == [tmp_path]
    refused = moor("runtimes", "--all")
    assert (refused.status, "--all is for this machine" in refused.err) == (2, True)


def test_options_before_the_subcommand_are_refused(tmp_path: Path) -> None:
    refused = moor("runtimes", "--data-dir", tmp_path, "features")
    assert (refused.status, "give --data-dir behind features" in refused.err) == (2, True)


def test_handlers_whose_features_are_not_probed_yet_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(target: Target) -> tuple[RuntimeProfile, ...]:
        del target
        found = (ProfileFeature(name="exec", state="Supported"),)
        return (
            RuntimeProfile(
                spec=RuntimeProfileSpec(node_name="n1", handler="crun"),
                status=RuntimeProfileStatus(features=found),
            ),
            RuntimeProfile(spec=RuntimeProfileSpec(node_name="n1", handler="runc")),
            RuntimeProfile(spec=RuntimeProfileSpec(node_name="n1", handler="kata"), status=FAILS),
        )

    monkeypatch.setattr(runtimes, "_profiles", read)
    answer = moor("runtimes", "features", "--data-dir", tmp_path)
    assert answer.err == (
        "kata does not work: no kernel; set path\nnot probed yet, which takes a minute: runc\n"
    )
    assert [line.split() for line in answer.out.splitlines() if line.startswith("exec ")] == [
        ["exec", "yes", "unknown", "unknown"]
    ]
