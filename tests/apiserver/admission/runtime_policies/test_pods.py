"""Pods get classes and are refused by policies, on an API server of this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.apiserver.admission.runtime_policies.cluster import (
    Server,
    add_three_runtimes,
    needs,
    serving_policies,
    warnings,
)

_CHOICE = "runtime.moorage.dev/class-choice"
_REASON = "runtime.moorage.dev/class-choice-reason"


pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with serving_policies(tmp_path_factory.mktemp("policies")) as server:
        await add_three_runtimes(server)
        await server.account("kube-system")
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def server(shared: Server) -> AsyncIterator[Server]:
    yield shared
    await shared.clear("default", "team", "kube-system")


def notes_of(pod: Any) -> dict[str, str]:
    return dict(pod["metadata"].get("annotations", {}))


async def test_a_pod_gets_the_cheapest_class_that_fits(server: Server) -> None:
    answer = await server.pod("p", annotations=needs("isolation=kernel"))
    pod = answer.json
    assert pod["spec"]["runtimeClassName"] == "gvisor"
    assert pod["spec"]["overhead"] == {"memory": "32Mi"}
    assert notes_of(pod)[_CHOICE] == "fitted"
    assert notes_of(pod)[_REASON] == (
        "class gvisor is the cheapest that offers isolation=user-space-kernel, the needs of the pod"
    )
    other = await server.pod("q", annotations=needs("isolation=kernel gpu"))
    assert other.json["spec"]["runtimeClassName"] == "kata"


async def test_only_probes_may_name_a_class_of_probes(server: Server) -> None:
    name = "moorage-probe-runc.n1"
    await server.runtime_class(name, "runc")
    answer = await server.pod("p", runtimeClassName=name)
    assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
    assert "probes of a runtime agent alone" in answer.json["message"]
    await server.create("/api/v1/namespaces", {"metadata": {"name": "moorage-probes"}})
    await server.account("moorage-probes")
    answer = await server.pod("p", "moorage-probes", runtimeClassName=name)
    assert answer.status == 201, answer.text


async def test_no_class_that_fits_is_a_refusal_with_what_each_lacks(server: Server) -> None:
    answer = await server.pod("p", annotations=needs("isolation=kernel host-network"))
    assert answer.status == 403
    assert answer.json["message"] == (
        'pods "p" is forbidden: no RuntimeClass for the pod: needs of the pod: no class offers '
        "isolation=user-space-kernel, host-network (runc: its isolation is shared-kernel, not "
        "user-space-kernel or stronger; gvisor: it lacks host-network; kata: it lacks host-network)"
    )
    huge = await server.pod("p", container={"resources": {"requests": {"memory": "9Gi"}}},
                            annotations=needs("isolation=kernel"))  # fmt: skip
    assert "gvisor: no node has room for memory 9248Mi, overhead included" in huge.text


async def test_an_explicit_class_stays_and_forged_choices_are_removed(server: Server) -> None:
    forged = {_CHOICE: "fitted", _REASON: "because", "mine": "stays"}
    answer = await server.pod("p", runtimeClassName="runc", annotations=forged)
    assert answer.json["spec"]["runtimeClassName"] == "runc"
    assert notes_of(answer.json) == {"mine": "stays"}
    path = "/api/v1/namespaces/default/pods/p"
    patched = await server.patch(path, {"metadata": {"annotations": {_CHOICE: "default"}}})
    assert notes_of(patched.json) == {"mine": "stays"}
    patched = await server.patch(f"{path}/status", {"metadata": {"annotations": {_REASON: "x"}}})
    assert notes_of(patched.json) == {"mine": "stays"}
    fitted = await server.pod("q", annotations=needs("gpu") | forged)
    assert notes_of(fitted.json)[_REASON].startswith("class runc is the cheapest")
    gone = await server.patch(
        "/api/v1/namespaces/default/pods/q", {"metadata": {"annotations": {_CHOICE: None}}}
    )
    assert notes_of(gone.json)[_CHOICE] == "fitted"


async def test_a_default_class_with_opt_out_and_enforcement(server: Server) -> None:
    await server.policy("cluster", "", defaultClassName="kata")
    assert (await server.pod("a")).json["spec"]["runtimeClassName"] == "kata"
    await server.policy("own", defaultClassName="gvisor")
    pod = (await server.pod("b")).json
    assert pod["spec"]["runtimeClassName"] == "gvisor"
    assert notes_of(pod)[_CHOICE] == "default"
    assert notes_of(pod)[_REASON] == ("class gvisor is the default of RuntimePolicy default/own")
    opted = {"runtime.moorage.dev/default-class": "disabled"}
    assert "runtimeClassName" not in (await server.pod("c", labels=opted)).json["spec"]
    await server.policy("strict", "", defaultClassName="kata", enforceDefault=True)
    # An enforced default of the cluster precedes the namespace's.
    answer = await server.pod("d", labels=opted)
    assert answer.json["spec"]["runtimeClassName"] == "kata"
    assert "ClusterRuntimePolicy strict enforces its default class kata" in warnings(answer)[0]
    refused = await server.pod("e", runtimeClassName="legacy")
    assert "enforces its default class kata" in refused.json["message"]
    assert (await server.pod("f", runtimeClassName="runc")).status == 201


async def test_a_default_that_does_not_exist_is_a_refusal(server: Server) -> None:
    answer = await server.policy("own", defaultClassName="gone")
    assert warnings(answer) == ["spec.defaultClassName: RuntimeClass gone does not exist"]
    refused = await server.pod("p")
    assert refused.status == 403
    assert (
        "RuntimePolicy default/own has the default class gone, which does not exist"
        in (refused.json["message"])
    )


async def test_floors_and_allow_lists_name_the_classes_that_pass(server: Server) -> None:
    await server.policy("floor", "", minimumIsolation="user-space-kernel")
    refused = await server.pod("p")
    assert refused.status == 403
    assert refused.json["message"] == (
        'pods "p" is forbidden: ClusterRuntimePolicy floor sets the floor user-space-kernel, and '
        "the isolation of no class is shared-kernel; classes that would pass: gvisor, kata"
    )
    assert (await server.pod("p", runtimeClassName="runc")).status == 403
    assert (await server.pod("p", runtimeClassName="kata")).status == 201
    await server.policy("own", allowedClasses=["runc", "gvisor"], minimumIsolation="shared-kernel")
    refused = await server.pod("q", runtimeClassName="kata")
    assert (
        "RuntimePolicy default/own does not allow class kata; classes that would pass: gvisor"
        in (refused.json["message"])
    )
    await server.policy("other", "", allowedClasses=["kata"])
    refused = await server.pod("q", runtimeClassName="gvisor")
    assert (
        "ClusterRuntimePolicy other and RuntimePolicy default/own do not allow class gvisor; no "
        "class with a node would pass"
    ) in refused.json["message"]


async def test_a_change_of_policies_leaves_running_pods_alone(server: Server) -> None:
    await server.pod("p", runtimeClassName="runc")
    await server.policy("floor", "", minimumIsolation="virtual-machine")
    path = "/api/v1/namespaces/default/pods/p"
    assert (await server.patch(path, {"metadata": {"labels": {"a": "b"}}})).status == 200
    await server.patch(f"{path}/status", {"status": {"phase": "Running"}})


@pytest.mark.parametrize("mode", ["Enforce", "Warn", "Off"])
async def test_what_a_class_lacks_is_refused_warned_of_or_let_pass(
    server: Server, mode: str
) -> None:
    await server.policy("own", checks={"gvisor": mode})
    answer = await server.pod("p", runtimeClassName="gvisor", hostNetwork=True)
    text = "spec.hostNetwork: class gvisor lacks host-network; classes that would do: runc"
    assert answer.status == (403 if mode == "Enforce" else 201)
    assert warnings(answer) == ([text] if mode == "Warn" else [])
    if mode == "Enforce":
        assert answer.json["message"] == f'pods "p" is forbidden: {text}'


async def test_a_refusal_has_ten_reasons_at_most(server: Server) -> None:
    await server.policy("own", checks={"gvisor": "Enforce"})
    containers = [
        {"name": f"c{one}", "image": "i", "securityContext": {"privileged": True}}
        for one in range(50)
    ]
    answer = await server.pod("p", runtimeClassName="gvisor", containers=containers)
    assert answer.status == 403
    assert answer.json["message"].count("class gvisor lacks privileged") == 10
    assert answer.json["message"].endswith("; and 40 more")


async def test_templates_are_warned_of(server: Server) -> None:
    await server.policy("floor", "", minimumIsolation="user-space-kernel")
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "runtimeClassName": "gvisor",
            "containers": [
                {"name": "c", "image": "i", "securityContext": {"privileged": True}},
            ],
        },
    }
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    answer = await server.create(
        "/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": "d"}, "spec": spec}
    )
    assert warnings(answer) == [
        "spec.containers[0].securityContext.privileged: class gvisor lacks privileged; classes "
        "that would do: kata"
    ]
    template["spec"]["runtimeClassName"] = "runc"  # type: ignore[index]
    answer = await server.create(
        "/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": "e"}, "spec": spec}
    )
    assert warnings(answer)[0].startswith("pods would be refused: ClusterRuntimePolicy floor sets")


async def test_system_and_mirror_pods_are_exempt(server: Server) -> None:
    await server.policy("strict", "", minimumIsolation="virtual-machine", defaultClassName="kata")
    system: dict[str, Any] = {"hostNetwork": True, "priorityClassName": "system-node-critical"}
    pod = (await server.pod("cni", "kube-system", **system)).json
    assert "runtimeClassName" not in pod["spec"]
    # The annotation alone does not make a mirror: it is on a node, and a node agent creates it.
    mirror = {"kubernetes.io/config.mirror": "x"}
    assert (await server.pod("m", annotations=mirror)).status == 422
    refused = await server.pod("n", annotations=mirror, runtimeClassName="runc", nodeName="n1")
    assert refused.status == 403
    pod = (await server.pod("dns", "kube-system", priorityClassName="system-cluster-critical")).json
    assert pod["spec"]["runtimeClassName"] == "kata"


async def test_needs_of_namespace_and_policies_count_too(server: Server) -> None:
    await server.namespace("team", annotations=needs("isolation=kernel"))
    assert (await server.pod("p", "team")).json["spec"]["runtimeClassName"] == "gvisor"
    await server.policy("gpus", "team", needs=["gpu"])
    pod = (await server.pod("q", "team")).json
    assert pod["spec"]["runtimeClassName"] == "kata"
    assert notes_of(pod)[_REASON].endswith("the needs of the namespace, RuntimePolicy team/gpus")
    bad = await server.pod("r", "team", annotations=needs("gpus"))
    assert "annotation runtime.moorage.dev/needs of the pod: unknown need 'gpus'" in bad.text


async def test_a_policy_that_means_nothing_is_refused(server: Server) -> None:
    path = "/apis/runtime.moorage.dev/v1alpha1/clusterruntimepolicies"
    body = {
        "apiVersion": "runtime.moorage.dev/v1alpha1",
        "kind": "ClusterRuntimePolicy",
        "metadata": {"name": "bad"},
        "spec": {
            "needs": ["warp-drive"],
            "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]},
        },
    }
    answer = await server.create(path, body, status=422)
    assert (
        "spec.needs[0]: Invalid value: \"warp-drive\": unknown need 'warp-drive'"
        in (answer.json["message"])
    )
    answer = await server.policy("nothing", allowedClasses=[])
    assert warnings(answer) == [
        "spec.allowedClasses: no class is allowed, so every new pod is refused"
    ]
    refused = await server.pod("p", runtimeClassName="runc")
    assert (
        "RuntimePolicy default/nothing does not allow class runc; no class with a node"
        in (refused.json["message"])
    )


async def test_a_node_that_flaps_between_features_is_followed(server: Server) -> None:
    for turn in range(3):
        await server.profile("n1", "runsc", has="gpu", isolation="user-space-kernel")
        pod = (await server.pod(f"a{turn}", annotations=needs("gpu isolation=kernel"))).json
        assert pod["spec"]["runtimeClassName"] == "gvisor"
        await server.profile("n1", "runsc", lacks="gpu", isolation="user-space-kernel")
        pod = (await server.pod(f"b{turn}", annotations=needs("gpu isolation=kernel"))).json
        assert pod["spec"]["runtimeClassName"] == "kata"


async def test_a_feature_of_some_nodes_selects_those_that_are_labelled(server: Server) -> None:
    await server.node("n2", "runsc", labels={"runsc.runtime.moorage.dev/gpu": "true"})
    await server.profile("n2", "runsc", has="gpu", isolation="user-space-kernel")
    answer = await server.pod("p", annotations=needs("gpu isolation=kernel"))
    assert answer.json["spec"]["runtimeClassName"] == "gvisor"
    assert answer.json["spec"]["nodeSelector"] == {"runsc.runtime.moorage.dev/gpu": "true"}
    asking = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    answer = await server.pod("q", runtimeClassName="gvisor", container=asking)
    assert answer.status == 201
    assert warnings(answer) == [
        "spec.containers[0].resources.limits[nvidia.com/gpu]: only some nodes of class gvisor "
        "have gpu; the node selector runsc.runtime.moorage.dev/gpu=true leads to them"
    ]


async def test_an_ephemeral_container_is_checked(server: Server) -> None:
    await server.policy("own", checks={"*": "Enforce"})
    await server.pod("p", runtimeClassName="gvisor")
    debugger = {"name": "d", "image": "i", "securityContext": {"privileged": True}}
    answer = await server.patch(
        "/api/v1/namespaces/default/pods/p/ephemeralcontainers",
        {"spec": {"ephemeralContainers": [debugger]}},
        status=403,
    )
    assert (
        "spec.ephemeralContainers[0].securityContext.privileged: class gvisor lacks"
        in (answer.json["message"])
    )
