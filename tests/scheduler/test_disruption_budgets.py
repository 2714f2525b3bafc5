"""Disruption budgets in preemption: whom they spare, and when not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.disruptions import PodDisruptionBudget
from moorage.scheduler.cluster_state import ClusterState, DisruptionBudgets
from moorage.scheduler.nodes import Placed
from tests.scheduler.objects import a_cluster, a_node, a_pod
from tests.scheduler.test_preemption import important, outcome_of, preemption_of

WEB = {"matchLabels": {"app": "web"}}


def budget(
    name: str = "b", *, selector: Any = None, namespace: str = "default", allowed: int = 0,
    disrupted: tuple[str, ...] = (),
) -> PodDisruptionBudget:  # fmt: skip
    wire = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": WEB if selector is None else selector},
        "status": {
            "disruptionsAllowed": allowed,
            "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z"),
        },
    }
    return msgspec.convert(wire, PodDisruptionBudget)


def placed(*names: str, app: str | None = "web", namespace: str = "default") -> list[Placed]:
    state = a_cluster(
        a_node("n1"),
        *(
            a_pod(name, node="n1", namespace=namespace, labels={"app": app} if app else None)
            for name in names
        ),
    )
    by_name = {entry.pod.metadata.name: entry for entry in state.nodes["n1"].pods.values()}
    return [by_name[name] for name in names]


def violating(budgets: DisruptionBudgets, pods: list[Placed]) -> list[str]:
    keys = budgets.violated_by(pods)
    return [entry.pod.metadata.name for entry in pods if entry.key in keys]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (budget(allowed=0), ["a", "b", "c"]),
        (budget(allowed=1), ["b", "c"]),
        (budget(allowed=3), []),
        (budget(allowed=1, disrupted=("a",)), ["c"]),
        (budget(namespace="other"), []),
        (budget(selector={"matchLabels": {"app": "db"}}), []),
        (budget(selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
         ["a", "b", "c"]),
        (budget(selector={}), []),
        (budget(selector={"matchExpressions": [{"key": "app", "operator": "?"}]}), []),
    ],
)  # fmt: skip
def test_pods_beyond_what_a_budget_allows(given: PodDisruptionBudget, expected: list[str]) -> None:
    budgets = DisruptionBudgets()
    budgets.put(given)
    assert violating(budgets, placed("a", "b", "c")) == expected


def test_pods_without_labels_violate_nothing() -> None:
    budgets = DisruptionBudgets()
    budgets.put(budget(selector={"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}))
    assert violating(budgets, placed("a", app=None)) == []
    assert violating(budgets, placed("a")) == ["a"]


def test_a_budget_that_changes_or_goes() -> None:
    budgets = DisruptionBudgets()
    pods = placed("a")
    budgets.put(budget("b"))
    budgets.put(budget("c", allowed=1))
    assert violating(budgets, pods) == ["a"]
    budgets.put(budget("b", allowed=1))
    assert violating(budgets, pods) == []
    budgets.put(budget("b"))
    budgets.remove(budget("b"))
    budgets.remove(budget("b"))
    assert violating(budgets, pods) == []
    budgets.put(budget("c"))
    assert violating(budgets, pods) == ["a"]
    budgets.put(budget("c", selector={}))
    assert violating(budgets, pods) == []


def _cluster(*pods: Any, nodes: tuple[str, ...] = ("n1",), allowed: int = 0) -> ClusterState:
    state = a_cluster(*(a_node(name, cpu="4") for name in nodes), *pods)
    state.disruption_budgets.put(budget(allowed=allowed))
    return state


def web(name: str, node: str = "n1", priority: int = 1, cpu: str = "2") -> Any:
    return a_pod(name, cpu=cpu, priority=priority, node=node, labels={"app": "web"})


def test_a_pod_without_budget_goes_before_a_less_important_one_with() -> None:
    other = a_pod("other", cpu="2", priority=5, node="n1", labels={"app": "other"})
    assert preemption_of(_cluster(web("web"), other), important()) == ("n1", ["other"])
    assert preemption_of(_cluster(web("web"), other, allowed=1), important()) == ("n1", ["web"])


def test_a_node_where_no_budget_is_violated_is_taken() -> None:
    other = a_pod("other", cpu="4", priority=50, node="n2", labels={"app": "other"})
    state = _cluster(web("web", cpu="4"), other, nodes=("n1", "n2"))
    assert preemption_of(state, important()) == ("n2", ["other"])


def test_a_budget_does_not_stop_preemption() -> None:
    state = _cluster(web("a"), web("b"))
    outcome = outcome_of(state, important("4"))
    assert outcome.preemption is not None
    assert outcome.preemption.violations == 2
    assert preemption_of(state, important("4")) == ("n1", ["a", "b"])
