"""Admission policies of the runtime agent, on our API server: a hostile pod has its node alone."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.runtime_group import PROBE_LABEL
from moorage.apiserver.cel.environment import make_environment
from moorage.apiserver.cel.library.declaring import Type
from moorage.apiserver.cel.program import Program
from moorage.attach.manifests.agent_policy import OWN_CLASS_NAME, objects
from moorage.attach.values import Values
from moorage.runtimes.probing.pod_manifest import probe_class_name
from moorage.wire.client.config import load_kubeconfig
from tests.attach.hostile_agent import assert_confined
from tests.running import RunningCluster


async def test_a_hostile_agent_changes_what_is_of_its_own_node_alone(
    control_plane: RunningCluster,
) -> None:
    await assert_confined(load_kubeconfig(control_plane.kubeconfig))


_LONG = "n" * 200
_LONGEST = "n" * 240
_NAMES = ("request", "object", "oldObject", "variables")
_ENVIRONMENT = make_environment(dict.fromkeys(_NAMES, Type.DYN))


@pytest.mark.parametrize(
    ("name", "node", "expected"),
    [
        (probe_class_name("n1", "h" * 63), "n1", True),
        (probe_class_name("a.n1", "h" * 63), "n1", False),
        ("moorage-probe-cut-0123456789.n1", "n1", False),
        (probe_class_name(_LONG, "h" * 63), _LONG, True),
        (probe_class_name(f"a.{_LONG}", "h" * 63), _LONG, False),
        (probe_class_name(_LONGEST, "h" * 63), _LONGEST, True),
        (probe_class_name(f"a{_LONGEST[:-1]}b", "h" * 63), _LONGEST, False),
        (f"mine.{_LONG}", _LONG, False),
        (f"moorage-probe-h.{_LONG}.b", _LONG, False),
        ("moorage-probe-", _LONG, False),
    ],
)
def test_a_class_has_the_name_of_its_own_nodes_probes(name: str, node: str, expected: bool) -> None:
    given = {
        "request": {"operation": "CREATE"},
        "object": {"metadata": {"name": name}, "handler": "h" * 63},
        "oldObject": None,
        "variables": {"node": node},
    }
    assert Program(_ENVIRONMENT, OWN_CLASS_NAME).evaluate(given) is expected


@pytest.mark.parametrize("length", [1, 176, 228, 229, 234, 235, 253])
@pytest.mark.parametrize("handler", ["a", "runc", "h" * 63])
def test_each_probes_class_may_be_made_by_its_node_alone(length: int, handler: str) -> None:
    node, other = "n" * length, "n" * (length - 1) + "o"
    asked = {
        "request": {"operation": "CREATE"},
        "object": {
            "metadata": {"name": probe_class_name(node, handler), "labels": {PROBE_LABEL: "x"}},
            "handler": handler,
        },
    }
    policy = "moorage-runtime-agent-classes"
    assert _refusals(policy, **asked, variables={"node": node}) == []
    assert _refusals(policy, **asked, variables={"node": other})


def _refusals(policy: str, **request: Any) -> list[str]:
    """Return what a policy says against a request; its variable is the node n1."""
    (found,) = [one for one in objects(Values()) if one["metadata"]["name"] == policy
                and one["kind"] == "ValidatingAdmissionPolicy"]  # fmt: skip
    given = {"oldObject": None, "object": None, "variables": {"node": "n1"}, **request}
    return [
        check["message"]
        for check in found["spec"]["validations"]
        if Program(_ENVIRONMENT, check["expression"]).evaluate(given) is not True
    ]


@pytest.mark.parametrize(
    ("metadata", "refusals"),
    [
        ({}, []),
        ({"ownerReferences": [{"kind": "Node", "name": "n1"}]}, []),
        (
            {"ownerReferences": [{"kind": "Node", "name": "n2"}]},
            ["the owner of an agent's RuntimeProfile is its own node"],
        ),
        # It would keep the definition, and with it an attachment.
        ({"finalizers": ["a/b"]}, ["a runtime agent's RuntimeProfile has no finalizers"]),
        (
            {"name": "n2.runc"},
            ["a runtime agent writes RuntimeProfiles NODE.HANDLER of its own node only"],
        ),
    ],
)
def test_a_new_profile_is_of_the_own_node_and_can_be_removed(
    metadata: dict[str, Any], refusals: list[str]
) -> None:
    profile = {
        "metadata": {"name": "n1.runc"} | metadata,
        "spec": {"nodeName": "n1", "handler": "runc"},
    }
    asked = {"request": {"operation": "CREATE"}, "object": profile}
    assert _refusals("moorage-runtime-agent-profiles", **asked) == refusals


def test_others_may_have_given_a_profile_finalizers() -> None:
    """As a deletion in the foreground does, which must not refuse what the agent found."""
    profile = {
        "metadata": {"name": "n1.runc", "finalizers": ["foregroundDeletion"]},
        "spec": {"nodeName": "n1", "handler": "runc"},
    }
    asked = {"request": {"operation": "UPDATE"}, "object": profile, "oldObject": profile}
    assert _refusals("moorage-runtime-agent-profiles", **asked) == []
