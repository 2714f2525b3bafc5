"""`moor explain`: whom it asks about, and how the answer is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moorage.cli.commands import explain
from moorage.cli.connection import Target
from moorage.cli.errors import CliError
from moorage.cluster import Cluster
from moorage.cluster.layout import Layout
from moorage.inspect.explain import NodeAnswer, PodExplanation
from moorage.wire.client import config as client_config
from moorage.wire.client import rest
from tests.cli.moor import change, cluster, locked, moor

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


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """The questions, each with the cluster's name."""
    asked = []

    async def ask(target: Target, namespace: str, name: str) -> PodExplanation:
        assert target.cluster is not None
        asked.append((target.cluster.running_settings().name, namespace, name))
        return ANSWER if name == "a" else BARE

    monkeypatch.setattr(explain, "_ask", ask)
    return asked


def test_answer_has_a_section_for_each_part_with_content(
    asked: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    layout = cluster(tmp_path)
    with locked(layout):
        whole = moor("explain", "pod/a", "--data-dir", layout.root)
        bare = moor("explain", "b", "-n", "other", "--data-dir", layout.root)
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
    assert asked == [("moorage", "default", "a"), ("moorage", "other", "b")]


@pytest.mark.parametrize("target", ["pod/a", "pods/a", "po/a", "a"])
def test_a_pod_is_named_in_each_way_that_kubectl_takes(
    asked: list[tuple[str, str, str]], tmp_path: Path, target: str
) -> None:
    layout = cluster(tmp_path)
    with locked(layout):
        answer = moor("explain", target, "-o", "json", "--data-dir", layout.root)
    assert json.loads(answer.out)["nodes"][1]["objections"] == ["no handler", "no room"]
    assert asked == [("moorage", "default", "a")]


def test_kind_and_name_may_be_two_words(asked: list[tuple[str, str, str]], tmp_path: Path) -> None:
    layout = cluster(tmp_path)
    with locked(layout):
        assert moor("explain", "pod", "a", "--data-dir", layout.root).status == 0
        assert asked == [("moorage", "default", "a")]
        for words in (("pod/a", "b"), ("service", "a")):
            assert moor("explain", *words, "--data-dir", layout.root).status == 2


@pytest.mark.parametrize("target", ["service/a", "pod/", "deployment/", "/a", ""])
def test_a_target_that_is_no_pod_and_no_workload_is_a_usage_error(
    asked: list[tuple[str, str, str]], tmp_path: Path, target: str
) -> None:
    layout = cluster(tmp_path)
    with locked(layout):
        answer = moor("explain", target, "--data-dir", layout.root)
    assert answer.status == 2
    expected = f"pods and workloads can be explained: pod/NAME, deployment/NAME, not {target!r}"
    assert expected in answer.err
    assert asked == []


def test_a_cluster_that_is_down_is_status_3(
    asked: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    assert moor("explain", "a", "--data-dir", cluster(tmp_path).root).status == 3
    assert asked == []


class Api:
    """A client that only is there."""

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("has_node", [True, False])
@pytest.mark.parametrize("answers", [True, False])
async def test_what_this_machine_knows_is_given_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_node: bool, answers: bool
) -> None:
    layout = change(cluster(tmp_path), has_node=has_node, filters_by_handler=has_node)
    passed: dict[str, Any] = {}

    async def look(_layout: Layout) -> tuple[None, tuple[str, ...]]:
        return None, ("found",)

    async def in_use(_layout: Layout, handlers: tuple[str, ...]) -> Any:
        if not answers:
            raise CliError("does not answer")
        return type("InUse", (), {"handlers": (*handlers, "reported")})

    async def explain_pod(api: Api, namespace: str, name: str, **more: Any) -> PodExplanation:
        assert isinstance(api, Api)
        passed.update(more, pod=f"{namespace}/{name}")
        return ANSWER

    monkeypatch.setattr(explain, "inspect_machine", look)
    monkeypatch.setattr(explain, "handlers_in_use", in_use)
    monkeypatch.setattr(explain, "explain_pod", explain_pod)
    monkeypatch.setattr(client_config, "load_kubeconfig", lambda path: path)
    monkeypatch.setattr(rest, "Client", lambda *_, **__: Api())
    with locked(layout):
        answer = await explain._ask(Target(cluster=Cluster(layout.root)), "space", "name")
    assert answer == ANSWER
    assert passed["pod"] == "space/name"
    assert passed["filters_by_handler"] == has_node
    result = ("found",) if has_node else ()
    assert passed["local_handlers"] == ((*result, "reported") if answers else ())
    assert passed["now"].utcoffset() is not None
    assert passed["records"] is not None


async def test_nothing_of_this_machine_counts_for_another_kubernetes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: dict[str, Any] = {}

    async def explain_pod(_api: Api, _namespace: str, _name: str, **more: Any) -> PodExplanation:
        passed.update(more)
        return ANSWER

    monkeypatch.setattr(explain, "explain_pod", explain_pod)
    monkeypatch.setattr(client_config, "load_kubeconfigs", lambda *_: None)
    monkeypatch.setattr(rest, "Client", lambda *_, **__: Api())
    await explain._ask(Target((tmp_path / "other",)), "space", "name")
    assert (passed["local_handlers"], passed["records"]) == ((), None)
    assert not passed["filters_by_handler"]
