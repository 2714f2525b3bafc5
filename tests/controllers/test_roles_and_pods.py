from __future__ import annotations

import msgspec

from moorage.api.meta import ObjectMeta
from moorage.api.rbac import AggregationRule, ClusterRole, PolicyRule
from moorage.controllers.accounts.token_secrets import wanted_data
from moorage.controllers.objects import Pod
from moorage.controllers.pod_garbage import surplus_ended
from moorage.controllers.role_aggregation import gathered_rules
from tests.controllers.objects import pod


def role(name: str, *rules: PolicyRule, label: str = "") -> ClusterRole:
    labels = {label: "true"} if label else {}
    return ClusterRole(metadata=ObjectMeta(name=name, labels=labels), rules=rules)


PODS = PolicyRule(verbs=("get",), api_groups=("",), resources=("pods",))
NODES = PolicyRule(verbs=("get",), api_groups=("",), resources=("nodes",))


def test_rules_are_gathered_once_each_from_the_roles_selected() -> None:
    view = ClusterRole(
        metadata=ObjectMeta(name="view", labels={"to-view": "true"}),
        rules=(NODES,),
        aggregation_rule=AggregationRule(
            cluster_role_selectors=({"matchLabels": {"to-view": "true"}},)
        ),
    )
    others = [
        role("b", NODES, PODS, label="to-view"),
        role("a", PODS, label="to-view"),
        role("c", NODES),
    ]
    assert gathered_rules(view, [view, *others]) == (PODS, NODES)


def test_a_role_that_gathers_nothing_keeps_its_rules() -> None:
    assert gathered_rules(role("a", PODS), []) == (PODS,)


def evicted(of: Pod) -> Pod:
    return msgspec.structs.replace(
        of, status=msgspec.structs.replace(of.status, phase="Failed", reason="Evicted")
    )


def test_of_too_many_ended_pods_the_evicted_and_the_oldest_go() -> None:
    pods = [
        pod("young", phase="Succeeded", age=1),
        pod("old", phase="Failed", age=100),
        evicted(pod("evicted", age=2)),
        pod("running", age=1000),
        pod("leaving", phase="Failed", age=1000, is_deleting=True),
    ]
    assert [obj.metadata.name for obj in surplus_ended(pods, 1)] == ["evicted", "old"]
    assert surplus_ended(pods, 3) == []


def test_a_token_secret_is_given_what_it_lacks() -> None:
    assert wanted_data({}, "ns", "pem") == {"namespace": "bnM=", "ca.crt": "cGVt"}
    assert wanted_data({"namespace": "bnM=", "ca.crt": "x"}, "ns", "pem") == {"ca.crt": "cGVt"}
