"""`moor runtimes`: which handlers are listed, in which columns, and what is said below each."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
from moorage.cluster.layout import Layout
from moorage.engine.handlers import Handler
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.resources import RUNTIME_PROFILES
from moorage.wire.cri import engine_pb
from tests.cli.moor import (
    FakeEngine,
    FakeFactory,
    change,
    cluster,
    locked,
    serving,
    with_kubeconfig,
)
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


class Machine(FakeFactory):
    """It has FOUND, the API has `profiles`; `looks` are the clusters for which it was looked at."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.looks: list[Path] = []
        self.profiles: list[RuntimeProfile] = []
        self.configs: list[ClientConfig] = []

    async def inspect_machine(self, layout: Layout, **_: Any) -> Any:
        self.looks.append(layout.root)
        return a_host(), FOUND

    def client(self, config: ClientConfig, _user_agent: str) -> Any:
        self.configs.append(config)
        return self

    async def __aenter__(self) -> Machine:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def list(self, resource: object) -> Any:
        assert resource is RUNTIME_PROFILES
        return SimpleNamespace(items=self.profiles)

    async def read_outcome(self, client: object) -> Outcome:
        assert client is self
        return OUTCOME


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_a_cluster_the_hosts_handlers_are_listed_with_reasons(
    machine: Machine, tmp_path: Path
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
    assert machine.moor("runtimes", "--data-dir", tmp_path).out.splitlines() == [*listed, *old]
    output = machine.moor("runtimes", "--all", "--data-dir", tmp_path).out
    assert output.splitlines() == [*listed, *kata, *old]
    assert machine.looks == [tmp_path, tmp_path]
    rows = json.loads(machine.moor("runtimes", "--all", "-o", "json", "--data-dir", tmp_path).out)
    assert [row["handler"] for row in rows] == ["runc", "kata", "old"]
    assert rows[1]["remedy"] == "turn it on"


def test_of_a_running_cluster_the_engines_with_their_files_and_complaints(
    machine: Machine, tmp_path: Path
) -> None:
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
        answer = machine.moor("runtimes", "--all", "--data-dir", layout.root)
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
    assert machine.looks == [layout.root]


FAILS = RuntimeProfileStatus(
    conditions=(Condition(type=WORKING, status="False", message="no kernel; set path"),)
)


def test_a_handler_whose_probe_fails_is_not_available(machine: Machine, tmp_path: Path) -> None:
    layout = with_kubeconfig(cluster(tmp_path, cluster_id="c", node_name="n1"))
    machine.profiles = [
        RuntimeProfile(spec=RuntimeProfileSpec(node_name=node, handler=handler), status=FAILS)
        for node, handler in (("n1", "kata"), ("other", "runc"))
    ]
    handlers = [
        engine_pb.Handler(name=name, is_available=True, program=f"/{name}")
        for name in ("runc", "kata")
    ]
    reported = engine_pb.Handlers(handlers=handlers)
    with serving(FakeEngine(handlers=reported), tmp_path / "c/engine.sock"), locked(layout):
        answer = machine.moor("runtimes", "-o", "json", "--data-dir", layout.root)
    by_name = {row["handler"]: row for row in json.loads(answer.out)}
    assert (by_name["runc"]["available"], by_name["runc"]["reason"]) == (True, "")
    assert by_name["kata"]["available"] is False
    assert by_name["kata"]["reason"] == "its probe fails: no kernel; set path"
    assert machine.looks == [layout.root]


def test_of_another_engine_those_that_it_lists_alone(machine: Machine, tmp_path: Path) -> None:
    layout = cluster(tmp_path)
    with serving_apart(FakeCrio(Behaviour(handlers=["", "b"])), tmp_path) as endpoint:
        change(layout, cri=endpoint)
        answer = machine.moor("runtimes", "--data-dir", layout.root)
        assert answer.out.splitlines() == [
            "HANDLER   DEFAULT   AVAILABLE   FEATURES",
            "-         yes       yes         -",
            "b         no        yes         -",
        ]
        assert machine.looks == []
        change(layout, cri=endpoint, has_node=False)
        assert "runc" in machine.moor("runtimes", "--data-dir", layout.root).out
        assert machine.looks == [layout.root]


OUTCOME = Outcome(
    nodes=(
        NodeOutcome("n1", "containerd://2.4.2", {"runc": "shared-kernel"}, {"kata": "hangs"}),
        NodeOutcome("n2", "cri-o://1.37", problem="no agent runs there", remedy="start it"),
    ),
    classes={"kata": ("kata",), "runc": ("native", "runc")},
)


def test_of_another_kubernetes_those_that_its_nodes_report(
    machine: Machine, tmp_path: Path
) -> None:
    file = with_kubeconfig(cluster(tmp_path)).kubeconfig.rename(tmp_path / "other.kubeconfig")
    answer = machine.moor("runtimes", "--kubeconfig", file, "--context", "c")
    assert answer.out.splitlines() == [
        "NODE   ENGINE               WORKS                  DOES NOT WORK",
        "n1     containerd://2.4.2   runc (shared-kernel)   kata",
        "    kata: hangs",
        "n2     cri-o://1.37         -                      -",
        "    no agent runs there: start it",
        "handler runc: runtimeClassName native, runc",
    ]
    environment = {"KUBECONFIG": str(file)}
    answer = machine.moor("runtimes", "-o", "json", environment=environment)
    document = json.loads(answer.out)
    assert [node["node"] for node in document["nodes"]] == ["n1", "n2"]
    assert [config.server for config in machine.configs] == ["https://api.example:6443"] * 2
    assert machine.looks == []
    machine.moor("runtimes", "--data-dir", tmp_path)
    assert machine.looks == [tmp_path]
    refused = machine.moor("runtimes", "--all", environment=environment)
    assert (refused.status, "--all is for this machine" in refused.err) == (2, True)


def test_options_before_the_subcommand_are_refused(machine: Machine, tmp_path: Path) -> None:
    refused = machine.moor("runtimes", "--data-dir", tmp_path, "features")
    assert (refused.status, "give --data-dir behind features" in refused.err) == (2, True)


def test_handlers_whose_features_are_not_probed_yet_are_named(
    machine: Machine, tmp_path: Path
) -> None:
    found = (ProfileFeature(name="exec", state="Supported"),)
    statuses = {
        "crun": RuntimeProfileStatus(features=found), "runc": RuntimeProfileStatus(), "kata": FAILS,
    }  # fmt: skip
    machine.profiles = [
        RuntimeProfile(spec=RuntimeProfileSpec(node_name="n1", handler=handler), status=status)
        for handler, status in statuses.items()
    ]
    file = with_kubeconfig(cluster(tmp_path)).kubeconfig
    file = file.rename(tmp_path / "other")
    answer = machine.moor("runtimes", "features", "--kubeconfig", file)
    assert answer.err == (
        "kata does not work: no kernel; set path\nnot probed yet, which takes a minute: runc\n"
    )
    assert [line.split() for line in answer.out.splitlines() if line.startswith("exec ")] == [
        ["exec", "yes", "unknown", "unknown"]
    ]
