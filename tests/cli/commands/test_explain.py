"""`moor explain`: whom it asks about, and how the answer is printed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.cli.errors import CliError
from moorage.cluster.layout import Layout
from moorage.inspect.explain import NodeAnswer, PodExplanation
from moorage.wire.client.config import ClientConfig
from tests.cli.moor import FakeFactory, NoApi, change, cluster, locked, with_kubeconfig

ANSWER = PodExplanation(
    pod="default/a", phase="Running", verdict="runs on n1", runtime_class="gvisor",
    handler="runsc", overhead={"cpu": "250m", "memory": "64Mi"}, node="n1",
    nodes=(
        NodeAnswer("n1", fits=True, objections=()),
        NodeAnswer("n2", fits=False, objections=("no handler", "no room")),
    ),
    containers=("main: running",), events=("Pulled: yes",), remedies=("wait",),
)  # fmt: skip
BARE = PodExplanation(
    pod="default/a", phase="Pending", verdict="waits", runtime_class="(none)", handler="d",
    overhead={}, node="", nodes=(), containers=(), events=(), remedies=(),
)  # fmt: skip


class Machine(FakeFactory):
    """A machine with a handler, and a cluster whose API has nothing; what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.facts: dict[str, Any] = {}
        self.engine_answers = True

    def client(self, config: ClientConfig, user_agent: str) -> Any:
        assert config.server == "https://api.example:6443"
        assert user_agent == "moor-explain"
        return NoApi()

    async def inspect_machine(self, layout: Layout, **_: Any) -> Any:
        del layout
        return None, ("found",)

    async def handlers_in_use(self, layout: Layout, installed: Any) -> Any:
        del layout
        if not self.engine_answers:
            raise CliError("does not answer")
        return SimpleNamespace(handlers=(*installed, "reported"))

    async def explain_pod(
        self, client: Any, namespace: str, name: str, **facts: Any
    ) -> PodExplanation:
        assert isinstance(client, NoApi)
        self.asked.append(f"{namespace}/{name}")
        self.facts = facts
        return ANSWER if name == "a" else BARE


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_answer_has_a_section_for_each_part_with_content(machine: Machine, tmp_path: Path) -> None:
    layout = with_kubeconfig(cluster(tmp_path))
    with locked(layout):
        whole = machine.moor("explain", "pod/a", "--data-dir", layout.root)
        bare = machine.moor("explain", "b", "-n", "other", "--data-dir", layout.root)
    assert whole.out == (
        "pod default/a runs on n1\n\n"
        "class      gvisor\n"
        "handler    runsc\n"
        "overhead   cpu 250m, memory 64Mi, added to the containers' requests\n"
        "node       n1\n"
        "\nnodes\n"
        "  n1: has everything the pod needs (it is here)\n"
        "  n2: no handler\n"
        "  n2: no room\n"
        "\ncontainers\n  main: running\n"
        "\nwhat to do\n  wait\n"
        "\nevents\n  Pulled: yes\n"
    )
    assert bare.out == "pod default/a waits\n\nclass      (none)\nhandler    d\nnode       -\n"
    assert machine.asked == ["default/a", "other/b"]


@pytest.mark.parametrize("target", ["pod/a", "pods/a", "po/a", "a"])
def test_a_pod_is_named_in_each_way_that_kubectl_takes(
    machine: Machine, tmp_path: Path, target: str
) -> None:
    layout = with_kubeconfig(cluster(tmp_path))
    with locked(layout):
        answer = machine.moor("explain", target, "-o", "json", "--data-dir", layout.root)
    assert json.loads(answer.out)["nodes"][1]["objections"] == ["no handler", "no room"]
    assert machine.asked == ["default/a"]


def test_kind_and_name_may_be_two_words(machine: Machine, tmp_path: Path) -> None:
    layout = with_kubeconfig(cluster(tmp_path))
    with locked(layout):
        assert machine.moor("explain", "pod", "a", "--data-dir", layout.root).status == 0
        assert machine.asked == ["default/a"]
        for words in (("pod/a", "b"), ("service", "a")):
            assert machine.moor("explain", *words, "--data-dir", layout.root).status == 2


@pytest.mark.parametrize("target", ["service/a", "pod/", "deployment/", "/a", ""])
def test_a_target_that_is_no_pod_and_no_workload_is_a_usage_error(
    machine: Machine, tmp_path: Path, target: str
) -> None:
    layout = with_kubeconfig(cluster(tmp_path))
    with locked(layout):
        answer = machine.moor("explain", target, "--data-dir", layout.root)
    assert answer.status == 2
    expected = f"pods and workloads can be explained: pod/NAME, deployment/NAME, not {target!r}"
    assert expected in answer.err
    assert machine.asked == []


def test_a_cluster_that_is_down_is_status_3(machine: Machine, tmp_path: Path) -> None:
    assert machine.moor("explain", "a", "--data-dir", cluster(tmp_path).root).status == 3
    assert machine.asked == []


@pytest.mark.parametrize("has_node", [True, False])
@pytest.mark.parametrize("answers", [True, False])
def test_what_this_machine_knows_is_given_along(
    machine: Machine, tmp_path: Path, has_node: bool, answers: bool
) -> None:
    machine.engine_answers = answers
    layout = change(cluster(tmp_path), has_node=has_node, filters_by_handler=has_node)
    with locked(with_kubeconfig(layout)):
        answer = machine.moor("explain", "name", "-n", "space", "--data-dir", layout.root)
    assert answer.status == 0
    assert machine.asked == ["space/name"]
    assert machine.facts["filters_by_handler"] == has_node
    result = ("found",) if has_node else ()
    assert machine.facts["local_handlers"] == ((*result, "reported") if answers else ())
    assert machine.facts["now"].utcoffset() is not None
    assert machine.facts["records"] is not None


def test_nothing_of_this_machine_counts_for_another_kubernetes(
    machine: Machine, tmp_path: Path
) -> None:
    file = with_kubeconfig(cluster(tmp_path)).kubeconfig.rename(tmp_path / "other")
    assert machine.moor("explain", "a", "--kubeconfig", file).status == 0
    assert (machine.facts["local_handlers"], machine.facts["records"]) == ((), None)
    assert not machine.facts["filters_by_handler"]
