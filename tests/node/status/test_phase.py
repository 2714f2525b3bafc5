"""The phase, from container states written short.

`w` waiting, `W1` waiting after an end with code 1, `r` running, `R` running and started, `t0`
ended with code 0; `-` no status.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.pods import ContainerStatus, PodSpec
from moorage.node.status.phase import phase_of
from tests.node.objects import a_pod, wire_container


def statuses(**short: str) -> list[ContainerStatus]:
    containers = []
    for name, text in short.items():
        fields: dict[str, Any] = {"name": name}
        match text[0]:
            case "-":
                continue
            case "w":
                fields["state"] = {"waiting": {}}
            case "W":
                fields["state"] = {"waiting": {}}
                fields["lastState"] = {"terminated": {"exitCode": int(text[1:])}}
            case "r" | "R":
                fields["state"] = {"running": {}}
                fields["started"] = text[0] == "R"
            case "t":
                fields["state"] = {"terminated": {"exitCode": int(text[1:])}}
        containers.append(msgspec.convert(fields, ContainerStatus))
    return containers


def spec(policy: str, **fields: Any) -> PodSpec:
    return a_pod(wire_container("a"), wire_container("b"), restartPolicy=policy, **fields).spec


def phase(spec: PodSpec, *, final: bool = False, begun: bool = False, **short: str) -> str:
    return phase_of(spec, statuses(**short), is_final=final, has_main_started=begun)


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        ("-", "-", "Pending Pending Pending"),
        ("w", "w", "Pending Pending Pending"),
        ("R", "w", "Pending Pending Pending"),
        ("R", "-", "Pending Pending Pending"),
        ("R", "R", "Running Running Running"),
        ("R", "t1", "Running Running Running"),
        ("R", "W1", "Running Running Running"),
        ("t0", "t0", "Running Succeeded Succeeded"),
        ("t0", "t1", "Running Running Failed"),
        ("t1", "t1", "Running Running Failed"),
        ("W1", "W0", "Running Running Failed"),
    ],
)
def test_main_containers_under_each_policy(a: str, b: str, wanted: str) -> None:
    result = [phase(spec(policy), a=a, b=b) for policy in ("Always", "OnFailure", "Never")]
    assert result == wanted.split()


@pytest.mark.parametrize(
    ("a", "b", "wanted"), [("t0", "t0", "Succeeded"), ("t0", "t137", "Failed")]
)
def test_a_pod_that_ends_has_its_last_phase(a: str, b: str, wanted: str) -> None:
    assert phase(spec("Always"), final=True, a=a, b=b) == wanted


@pytest.mark.parametrize(
    ("policy", "init", "wanted"),
    [
        ("Always", "-", "Pending"),
        ("Always", "r", "Pending"),
        ("Always", "t1", "Pending"),
        ("Always", "W1", "Pending"),
        ("Never", "r", "Pending"),
        ("Never", "t1", "Failed"),
        ("OnFailure", "t1", "Pending"),
    ],
)
def test_init_containers_come_first(policy: str, init: str, wanted: str) -> None:
    pod_spec = spec(policy, initContainers=[wire_container("i")])
    assert phase(pod_spec, i=init, a="w", b="w") == wanted


def test_init_done() -> None:
    pod_spec = spec("Always", initContainers=[wire_container("i")])
    assert phase(pod_spec, i="t0", a="R", b="R") == "Running"


@pytest.mark.parametrize(
    ("side", "a", "begun", "wanted"),
    [
        ("-", "w", False, "Pending"),
        ("-", "R", True, "Pending"),
        ("r", "w", False, "Pending"),
        ("R", "w", False, "Pending"),
        ("R", "R", True, "Running"),
        # Restarting beside main containers that run does not take the pod back.
        ("W1", "R", True, "Running"),
        ("r", "R", True, "Running"),
        ("R", "t0", True, "Running"),
    ],
)
def test_sidecars(side: str, a: str, begun: bool, wanted: str) -> None:
    result = a_pod(
        wire_container("a"),
        initContainers=[wire_container("s", restartPolicy="Always")],
        restartPolicy="Never",
    ).spec
    assert phase(result, begun=begun, s=side, a=a) == wanted


def test_once_sidecars_have_ended_main_containers_decide() -> None:
    result = a_pod(
        wire_container("a"),
        initContainers=[wire_container("s", restartPolicy="Always")],
        restartPolicy="Never",
    ).spec
    assert phase(result, begun=True, final=True, s="t137", a="t0") == "Succeeded"


def test_rules_of_a_container_keep_the_pod_running() -> None:
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
    own = {"restartPolicy": "Never", "restartPolicyRules": rules}
    result = a_pod(wire_container("a", **own), restartPolicy="Never").spec
    assert (phase(result, a="t42"), phase(result, a="t1")) == ("Running", "Failed")
