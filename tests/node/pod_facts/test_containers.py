from __future__ import annotations

from typing import Any

import pytest

from moorage.node.pod_facts.containers import (
    Kind,
    may_restart,
    member,
    members,
    should_restart,
    sidecars,
)
from tests.node.objects import a_container, a_pod, wire_container


def rule(operator: str, *codes: int) -> dict[str, Any]:
    return {"action": "Restart", "exitCodes": {"operator": operator, "values": list(codes)}}


@pytest.mark.parametrize(
    ("of_pod", "own", "rules", "restarting"),
    [
        ("Always", None, [], {0, 1, 42}),
        ("OnFailure", None, [], {1, 42}),
        ("Never", None, [], set()),
        ("Never", "Always", [], {0, 1, 42}),
        ("Always", "Never", [], set()),
        ("Always", "OnFailure", [], {1, 42}),
        ("Always", "Never", [rule("In", 42)], {42}),
        ("Always", "Never", [rule("NotIn", 42)], {0, 1}),
        ("Never", "OnFailure", [rule("In", 0)], {0, 1, 42}),
        ("Never", None, [rule("In", 42)], set()),
    ],
    ids=[
        "always",
        "on failure",
        "never",
        "own always",
        "own never",
        "own on failure",
        "rule in",
        "rule not in",
        "rule beside policy",
        "rules need a policy of their own",
    ],
)
def test_which_exit_codes_restart(
    of_pod: str, own: str | None, rules: list[dict[str, Any]], restarting: set[int]
) -> None:
    container = a_container(restartPolicy=own, restartPolicyRules=rules)
    spec = a_pod(restartPolicy=of_pod).spec
    assert {code for code in (0, 1, 42) if should_restart(container, spec, code)} == restarting
    if restarting:
        assert may_restart(container, spec)


def test_members_and_where_events_point() -> None:
    spec = a_pod(
        wire_container("app"),
        initContainers=[wire_container("init"), wire_container("side", restartPolicy="Always")],
        ephemeralContainers=[wire_container("debug")],
    ).spec
    assert [(member.name, member.kind) for member in members(spec)] == [
        ("app", Kind.MAIN),
        ("init", Kind.INIT),
        ("side", Kind.INIT),
        ("debug", Kind.EPHEMERAL),
    ]
    result = [member(spec, name) for name in ("app", "side", "debug")]
    assert [member.field_path for member in result if member] == [
        "spec.containers{app}",
        "spec.initContainers{side}",
        "spec.ephemeralContainers{debug}",
    ]
    assert member(spec, "gone") is None
    assert [sidecar.name for sidecar in sidecars(spec)] == ["side"]
