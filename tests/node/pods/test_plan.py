"""What is done next, for every state a pod can be found in.

Each case is a pod, what the engine has of it, and the actions that are missing. Actions are
written short: `app` starts a container, `-app` kills one, `sandbox1` makes a sandbox with that
attempt, `over` ends the pod.
"""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.pods import Pod
from moorage.node.pods.plan import NewSandbox, Plan, Probed, Reason, decide
from moorage.node.runtime.views import ContainerView, PodView, SandboxView, State, pod_view
from tests.node.objects import (
    UID,
    Wire,
    a_pod,
    a_sandbox,
    a_view,
    engine_has,
    exited,
    wire_container,
)

Found = SandboxView | ContainerView
NOTHING = pod_view(UID, (), ())


def said(plan: Plan) -> str:
    if plan.is_over:
        return "over"
    if plan.sandbox is not None:
        return f"sandbox{plan.sandbox.attempt}"
    kills = [f"-{kill.container.name}" for kill in plan.kill]
    return " ".join([*(member.name for member in plan.start), *kills])


def plan(pod: Pod, view: PodView, *, busy: str = "", probed: Probed | None = None) -> str:
    return said(decide(pod, view, probed or Probed(), frozenset(busy.split())))


def named(*names: str) -> list[Wire]:
    return [wire_container(name) for name in names]


def sidecar(name: str, **fields: Any) -> Wire:
    return wire_container(name, restartPolicy="Always", **fields)


# The sandbox

DEAD = a_sandbox(is_ready=False)


@pytest.mark.parametrize(
    ("spec", "view", "wanted"),
    [
        ({}, NOTHING, "sandbox0"),
        ({}, a_view(), "app"),
        ({}, a_view(DEAD), "sandbox1"),
        ({}, a_view(a_sandbox(attempt=4, ips=())), "sandbox5"),
        ({"hostNetwork": True}, a_view(a_sandbox(is_host_network=True, ips=())), "app"),
        ({"hostNetwork": True}, a_view(), "sandbox1"),
        (
            {},
            a_view(a_sandbox("new", attempt=2, created_ns=9**20), a_sandbox("old", attempt=1)),
            "sandbox3",
        ),
        (
            {},
            a_view(
                a_sandbox("new", attempt=2, created_ns=9**20),
                a_sandbox("old", attempt=1, is_ready=False),
            ),
            "app",
        ),
    ],
    ids=[
        "first",
        "serves",
        "died",
        "lost its address",
        "host network",
        "wrong network",
        "two at once",
        "an older dead one",
    ],
)
def test_a_sandbox_that_serves(spec: Wire, view: PodView, wanted: str) -> None:
    assert plan(a_pod(**spec), view) == wanted


def test_a_new_sandbox_names_the_one_it_follows() -> None:
    engine_plan = decide(a_pod(), a_view(DEAD), Probed(), frozenset())
    assert engine_plan.sandbox == NewSandbox(1, "s0")


@pytest.mark.parametrize(
    ("policy", "expected", "wanted"),
    [
        ("Always", [exited(code=0)], "sandbox1"),
        ("OnFailure", [exited(code=1)], "sandbox1"),
        ("OnFailure", [exited(code=0)], "over"),
        ("Never", [exited(code=0)], "over"),
        ("Never", [exited(code=1)], "over"),
        ("Never", [], "sandbox1"),
    ],
)
def test_dead_sandbox_is_replaced_if_a_container_would_run_in_it(
    policy: str, expected: list[ContainerView], wanted: str
) -> None:
    assert plan(a_pod(restartPolicy=policy), a_view(DEAD, *expected)) == wanted


# Main containers


@pytest.mark.parametrize(
    ("policy", "containers", "wanted"),
    [
        ("Always", [], "app"),
        ("Always", [engine_has()], ""),
        ("Always", [engine_has(state=State.CREATED)], "app"),
        ("Always", [engine_has(state=State.UNKNOWN)], "-app"),
        ("Always", [exited(code=0)], "app"),
        ("Always", [exited(code=1)], "app"),
        ("OnFailure", [exited(code=0)], "over"),
        ("OnFailure", [exited(code=1)], "app"),
        ("Never", [exited(code=0)], "over"),
        ("Never", [exited(code=1)], "over"),
        ("Never", [engine_has(state=State.CREATED)], "app"),
        ("Never", [exited(code=1), exited(code=0, restarts=1, created_s=5)], "over"),
        ("OnFailure", [exited(code=0), exited(code=1, restarts=1, created_s=5)], "app"),
    ],
)
def test_one_container(policy: str, containers: list[ContainerView], wanted: str) -> None:
    assert plan(a_pod(restartPolicy=policy), a_view(*containers)) == wanted


@pytest.mark.parametrize(
    ("expected", "wanted"),
    [
        ([], "a b"),
        ([engine_has("a")], "b"),
        ([engine_has("a"), exited("b")], ""),
        ([exited("a"), exited("b", 1)], "over"),
    ],
)
def test_a_pod_goes_on_while_one_of_its_containers_does(
    expected: list[ContainerView], wanted: str
) -> None:
    assert plan(a_pod(*named("a", "b"), restartPolicy="Never"), a_view(*expected)) == wanted


def test_containers_that_are_worked_on_are_left_alone() -> None:
    pod = a_pod(*named("a", "b"), restartPolicy="Never")
    assert plan(pod, a_view(), busy="a") == "b"
    assert plan(pod, a_view(exited("a")), busy="a b") == ""
    assert plan(pod, a_view(exited("a")), busy="b") == ""


def test_containers_behind_one_with_a_hook_wait_for_it() -> None:
    hook = {"postStart": {"exec": {"command": ["true"]}}}
    pod = a_pod(wire_container("a"), wire_container("b", lifecycle=hook), wire_container("c"))
    assert plan(pod, a_view()) == "a b"
    assert plan(pod, a_view(engine_has("a")), busy="b") == ""
    assert plan(pod, a_view(engine_has("a"), engine_has("b"))) == "c"


def test_a_rule_restarts_what_the_policy_would_not() -> None:
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
    pod = a_pod(
        wire_container(restartPolicy="Never", restartPolicyRules=rules), restartPolicy="Never"
    )
    assert plan(pod, a_view(exited(code=42))) == "app"
    assert plan(pod, a_view(exited(code=1))) == "over"
    # After the sandbox died too, something might run again.
    assert plan(pod, a_view(DEAD, exited(code=42))) == "sandbox1"


# Killing


def killed(pod: Pod, view: PodView, probed: Probed | None = None) -> list[tuple[str, Reason]]:
    engine_plan = decide(pod, view, probed or Probed(), frozenset())
    return [(action.message, action.reason) for action in engine_plan.kill]


@pytest.mark.parametrize(("policy", "suffix"), [("Always", ", will be restarted"), ("Never", "")])
@pytest.mark.parametrize(
    ("probed", "words", "reason"),
    [
        (Probed(liveness={"app-0": False}), "failed liveness probe", Reason.LIVENESS),
        (Probed(startup={"app-0": False}), "failed startup probe", Reason.STARTUP),
    ],
    ids=["liveness", "startup"],
)
def test_a_failed_probe_kills(
    policy: str, suffix: str, probed: Probed, words: str, reason: Reason
) -> None:
    pod = a_pod(restartPolicy=policy)
    assert killed(pod, a_view(engine_has()), probed) == [(f"Container app {words}{suffix}", reason)]


@pytest.mark.parametrize(
    "probed", [Probed(liveness={"app-0": True}), Probed(liveness={"older": False}), Probed()]
)
def test_other_verdicts_do_not(probed: Probed) -> None:
    assert killed(a_pod(), a_view(engine_has()), probed) == []


def test_a_changed_image_replaces_the_container_whatever_the_policy() -> None:
    pod = a_pod(wire_container(image="app:2"), restartPolicy="Never")
    assert killed(pod, a_view(engine_has())) == [
        ("Container app definition changed, will be restarted", Reason.CHANGED)
    ]


def test_a_container_that_does_not_say_what_it_was_made_from_is_kept() -> None:
    container = engine_has(memory=engine_has().memory.__class__(None, 0, "", "", None, None))
    assert killed(a_pod(), a_view(container)) == []


# Init containers

INIT = a_pod(wire_container("app"), initContainers=named("i1", "i2"))


@pytest.mark.parametrize(
    ("expected", "busy", "wanted"),
    [
        ([], "", "i1"),
        ([], "i1", ""),
        ([engine_has("i1")], "", ""),
        ([engine_has("i1", State.CREATED)], "", "i1"),
        ([engine_has("i1", State.UNKNOWN)], "", "-i1"),
        ([exited("i1")], "", "i2"),
        ([exited("i1")], "i2", ""),
        ([exited("i1", 1)], "", "i1"),
        ([exited("i1", 1)], "i1", ""),
        ([exited("i1"), engine_has("i2")], "", ""),
        ([exited("i1"), exited("i2", 3)], "", "i2"),
        ([exited("i1"), exited("i2")], "", "app"),
        ([exited("i2")], "", "app"),
        ([engine_has("app")], "", ""),
        ([engine_has("app", State.CREATED)], "", "app"),
        ([exited("i1"), exited("i2"), exited("app", 1)], "", "app"),
    ],
    ids=[
        "first",
        "being started",
        "runs",
        "created only",
        "unknown",
        "first done",
        "second being started",
        "first failed",
        "failed and being started",
        "second runs",
        "second failed",
        "all done",
        "records of the first are gone",
        "records of all are gone",
        "records gone, app created",
        "app crashed",
    ],
)
def test_init_containers_run_one_after_another(
    expected: list[ContainerView], busy: str, wanted: str
) -> None:
    assert plan(INIT, a_view(*expected), busy=busy) == wanted


def test_a_failed_init_container_ends_a_pod_that_never_restarts() -> None:
    pod = a_pod(wire_container("app"), initContainers=named("i1"), restartPolicy="Never")
    assert plan(pod, a_view(exited("i1", 1))) == "over"
    assert plan(pod, a_view(exited("i1"))) == "app"


# Sidecars

SIDE = a_pod(
    wire_container("app"),
    initContainers=[sidecar("s1"), wire_container("i"), sidecar("s2")],
    restartPolicy="Never",
)


@pytest.mark.parametrize(
    ("expected", "busy", "wanted"),
    [
        ([], "", "s1"),
        ([engine_has("s1")], "", "i"),
        ([exited("s1"), engine_has("i")], "", "s1"),
        ([engine_has("s1"), exited("i")], "", "s2"),
        ([engine_has("s1"), exited("i")], "s2", ""),
        ([engine_has("s1"), exited("i"), engine_has("s2")], "", "app"),
        ([engine_has("s1"), exited("i"), engine_has("s2"), engine_has("app")], "", ""),
        ([exited("s1"), exited("i"), engine_has("s2"), engine_has("app")], "", "s1"),
        ([exited("s1"), exited("i"), exited("s2"), engine_has("app")], "", "s1 s2"),
        ([exited("i"), engine_has("app")], "", "s1 s2"),
        ([engine_has("s1"), exited("i"), engine_has("s2"), exited("app", 1)], "", "over"),
        ([engine_has("s1"), exited("i", 1)], "", "over"),
        ([engine_has("s1"), exited("i"), exited("s2", 1)], "", "s2"),
    ],
    ids=[
        "first",
        "next once it runs",
        "comes back beside an init container",
        "second",
        "second being started",
        "then main",
        "all run",
        "comes back beside main",
        "both come back",
        "records gone",
        "main ended: over, whatever sidecars do",
        "init failed for good",
        "last one crashed before main began",
    ],
)
def test_sidecars(expected: list[ContainerView], busy: str, wanted: str) -> None:
    assert plan(SIDE, a_view(*expected), busy=busy) == wanted


@pytest.mark.parametrize(
    ("startup", "wanted"), [({}, ""), ({"s1-0": True}, "app"), ({"s1-0": False}, "-s1")]
)
def test_a_sidecars_startup_probe_holds_back_the_rest(
    startup: dict[str, bool], wanted: str
) -> None:
    probe = {"exec": {"command": ["true"]}}
    pod = a_pod(wire_container("app"), initContainers=[sidecar("s1", startupProbe=probe)])
    assert plan(pod, a_view(engine_has("s1")), probed=Probed(startup=startup)) == wanted


def test_a_sidecar_is_replaced_like_a_main_container() -> None:
    pod = a_pod(wire_container("app"), initContainers=[sidecar("s1", image="s1:2")])
    running = a_view(engine_has("s1"), engine_has("app"))
    assert killed(pod, running) == [("Init container s1 definition changed", Reason.CHANGED)]
    pod = a_pod(wire_container("app"), initContainers=[sidecar("s1")])
    assert killed(pod, running, Probed(liveness={"s1-0": False})) == [
        ("Init container s1 failed liveness probe", Reason.LIVENESS)
    ]


# Ephemeral containers


@pytest.mark.parametrize(
    ("expected", "busy", "wanted"),
    [
        ([engine_has()], "", "debug"),
        ([engine_has()], "debug", ""),
        ([engine_has(), engine_has("debug")], "", ""),
        ([engine_has(), exited("debug", 1)], "", ""),
    ],
    ids=["new", "being started", "runs", "runs only once"],
)
def test_ephemeral_containers(expected: list[ContainerView], busy: str, wanted: str) -> None:
    pod = a_pod(ephemeralContainers=[wire_container("debug")])
    assert plan(pod, a_view(*expected), busy=busy) == wanted


def test_an_ephemeral_container_does_not_wait_for_init() -> None:
    pod = a_pod(initContainers=named("i"), ephemeralContainers=named("debug"))
    assert plan(pod, a_view(engine_has("i"))) == "debug"
