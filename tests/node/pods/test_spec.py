from __future__ import annotations

from typing import Any

import pytest

from moorage.node.pods.spec import (
    Kind,
    described,
    grace_period_s,
    is_mirror,
    is_static,
    may_restart,
    member,
    members,
    quality,
    should_restart,
    sidecars,
    spoken_seconds,
)
from tests.node.objects import UID, a_container, a_pod, wire_container


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
    assert [(each.name, each.kind) for each in members(spec)] == [
        ("app", Kind.MAIN),
        ("init", Kind.INIT),
        ("side", Kind.INIT),
        ("debug", Kind.EPHEMERAL),
    ]
    found = [member(spec, name) for name in ("app", "side", "debug")]
    assert [each.field_path for each in found if each] == [
        "spec.containers{app}",
        "spec.initContainers{side}",
        "spec.ephemeralContainers{debug}",
    ]
    assert member(spec, "gone") is None
    assert [each.name for each in sidecars(spec)] == ["side"]


@pytest.mark.parametrize(
    ("spec", "meta", "wanted"),
    [
        ({}, {}, 30),
        ({"terminationGracePeriodSeconds": 5}, {}, 5),
        ({"terminationGracePeriodSeconds": 0}, {}, 0),
        ({"terminationGracePeriodSeconds": 5}, {"deletionGracePeriodSeconds": 0}, 0),
    ],
    ids=["default", "specified", "zero", "deletion says less"],
)
def test_grace_periods(spec: dict[str, Any], meta: dict[str, Any], wanted: int) -> None:
    assert grace_period_s(a_pod(meta=meta, **spec)) == wanted


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (1, "1s"),
        (1.5, "1.5s"),
        (59.999, "59.999s"),
        (60, "1m0s"),
        (160, "2m40s"),
        (300, "5m0s"),
        (3600, "1h0m0s"),
        (3661.5, "1h1m1.5s"),
    ],
)
def test_durations_as_go_prints_them(seconds: float, words: str) -> None:
    assert spoken_seconds(seconds) == words


def test_the_stored_quality_comes_first() -> None:
    assert quality(a_pod(status={"qosClass": "Guaranteed"})) == "Guaranteed"
    assert quality(a_pod()) == "BestEffort"


def test_static_and_mirror_pods_are_told_by_annotations() -> None:
    plain = a_pod()
    static = a_pod(meta={"annotations": {"kubernetes.io/config.source": "file"}})
    mirror = a_pod(meta={"annotations": {"kubernetes.io/config.mirror": "x"}})
    assert [is_static(each) for each in (plain, static, mirror)] == [False, True, False]
    assert [is_mirror(each) for each in (plain, static, mirror)] == [False, False, True]
    assert described(plain) == f"web_shop({UID})"
