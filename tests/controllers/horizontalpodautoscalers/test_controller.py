"""The autoscaler loop: what it reads, scales, reports and says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from moorage.api.clock import format_time
from moorage.api.errors import ConflictError, NotFoundError, StatusError
from moorage.controllers.horizontalpodautoscalers import AutoscalerController
from moorage.controllers.options import ControllerOptions
from moorage.wire.client.resources import HORIZONTAL_POD_AUTOSCALERS, PODS
from tests.clocks import START
from tests.controllers.memory import MemoryClient, World

SCALE = "/apis/apps/v1/namespaces/default/deployments/web/scale"
METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
LONG_AGO = "2025-01-01T00:00:00Z"
PUT = ("PUT", SCALE)
CUSTOM_PATH = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default"
EXTERNAL_PATH = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default"
CPU = {"type": "Resource", "resource": {
    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}  # fmt: skip


@pytest.fixture
def world() -> World:
    world = World()
    serve(world, "/apis/apps", {
        "name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}],
        "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"},
    })  # fmt: skip
    resources = [{"name": "deployments", "kind": "Deployment", "namespaced": True, "verbs": []}]
    serve(world, "/apis/apps/v1", {"resources": resources})
    set_scale(world, 2)
    world.client.answers[PUT] = b"{}"
    absent = NotFoundError("the server could not find the requested resource")
    serve(world, "/apis/custom.metrics.k8s.io", absent)
    serve(world, f"{EXTERNAL_PATH}/m", absent)
    return world


def serve(world: World, path: str, document: Any) -> None:
    world.client.answers["GET", path] = (
        document if isinstance(document, Exception) else json.dumps(document).encode()
    )


def set_scale(world: World, replicas: int, selector: str = "app=web", **more: Any) -> None:
    serve(world, SCALE, {
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": "web", "namespace": "default", "resourceVersion": "7"},
        "spec": {"replicas": replicas}, "status": {"replicas": replicas, "selector": selector},
        **more,
    })  # fmt: skip


def set_usage(world: World, *milli: int, container: str = "c") -> None:
    """Let pods exist that use so much CPU of one each; at none there are no metrics."""
    for index in range(len(milli)):
        world.client.put(PODS, {
            "metadata": {"name": f"p{index}", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running", "startTime": LONG_AGO, "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}]},
        })  # fmt: skip
    serve(world, METRICS, {"items": [
        {"metadata": {"name": f"p{index}"}, "timestamp": format_time(START), "window": "15.2s",
         "containers": [{"name": container, "usage": {"cpu": f"{one}m", "memory": "1Mi"}}]}
        for index, one in enumerate(milli)
    ]})  # fmt: skip


def autoscaler(name: str = "h", *, status: Any = None, **spec: Any) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 10, "metrics": [CPU], **spec,
        },
        "status": status or {},
    }  # fmt: skip


@asynccontextmanager
async def reconciling(world: World, *autoscalers: dict[str, Any]) -> AsyncIterator[MemoryClient]:
    """Run the controller, and let one period pass."""
    for one in autoscalers:
        world.client.put(HORIZONTAL_POD_AUTOSCALERS, one)
    controller = AutoscalerController(
        world.client, world.informers, world.recorder, ControllerOptions(cluster_ca=""), world.clock
    )
    async with world.running(controller.run(workers=1)) as client:
        await world.settled(15)
        await world.settled(1)
        yield client


def status(client: MemoryClient, name: str = "h") -> dict[str, Any]:
    wire = client.find(HORIZONTAL_POD_AUTOSCALERS, name)
    assert wire is not None
    shown = dict(wire["status"])
    if "currentMetrics" in shown:
        shown["currentMetrics"] = list(shown["currentMetrics"])
    return shown


def conditions(client: MemoryClient) -> dict[str, tuple[str, str, str]]:
    return {
        one["type"]: (one["status"], one["reason"], one["message"])
        for one in status(client)["conditions"]
    }


def sizes(client: MemoryClient) -> list[int]:
    """Return the replicas that were written, in order."""
    return [
        json.loads(request.more["body"])["spec"]["replicas"]
        for request in client.requests
        if request.verb == "request" and request.more.get("body")
    ]


def said(client: MemoryClient) -> list[tuple[str, str]]:
    return [(reason, message) for _, _, reason, message in client.events]


async def test_pods_above_the_target_get_more(world: World) -> None:
    set_usage(world, 900, 700)
    async with reconciling(world, autoscaler()) as client:
        assert sizes(client) == [4]
        assert said(client) == [(
            "SuccessfulRescale",
            "New size: 4; reason: cpu resource utilization (percentage of request) above target",
        )]  # fmt: skip
        assert conditions(client) == {
            "AbleToScale": (
                "True", "SucceededRescale",
                "the HPA controller was able to update the target scale to 4",
            ),
            "ScalingActive": (
                "True", "ValidMetricFound",
                "the HPA was able to successfully calculate a replica count from cpu resource "
                "utilization (percentage of request)",
            ),
            "ScalingLimited": (
                "False", "DesiredWithinRange", "the desired count is within the acceptable range",
            ),
        }  # fmt: skip
        shown = status(client)
        assert (shown["currentReplicas"], shown["desiredReplicas"]) == (2, 4)
        assert shown["currentMetrics"] == [
            {
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "current": {"averageUtilization": 80, "averageValue": "800m"},
                },
            }
        ]
        assert shown["lastScaleTime"] == "2026-01-01T00:00:15Z"
        written = [r for r in client.requests if r.more.get("body")]
        assert json.loads(written[0].more["body"])["metadata"]["resourceVersion"] == "7"


async def test_pods_below_the_target_go_after_the_window(world: World) -> None:
    set_usage(world, 100, 100)
    async with reconciling(world, autoscaler()) as client:
        assert sizes(client) == []
        assert conditions(client)["AbleToScale"][:2] == ("True", "ScaleDownStabilized")
        for _ in range(20):
            await world.settled(15)
        await world.settled(1)
        assert sizes(client)[0] == 1
        assert said(client)[0] == (
            "SuccessfulRescale", "New size: 1; reason: All metrics below target",
        )  # fmt: skip


async def test_nothing_is_written_while_nothing_changes(world: World) -> None:
    set_usage(world, 500, 500)
    async with reconciling(world, autoscaler()) as client:
        assert sizes(client) == []
        assert conditions(client)["AbleToScale"] == (
            "True", "ReadyForNewScale", "recommended size matches current size",
        )  # fmt: skip
        client.requests.clear()
        await world.settled(15)
        assert client.writes == []
        assert len([r for r in client.requests if r.verb == "request"]) == 2
        # Where a kind is served is asked once in half a minute.
        assert "/apis/apps" not in [r.key for r in client.requests]


@pytest.mark.parametrize(
    ("replicas", "spec", "size", "reason"),
    [
        (12, {}, 10, "Current number of replicas above Spec.MaxReplicas"),
        (1, {"minReplicas": 3}, 3, "Current number of replicas below Spec.MinReplicas"),
    ],
)
async def test_bounds_hold_without_metrics(
    world: World, replicas: int, spec: dict[str, Any], size: int, reason: str
) -> None:
    set_scale(world, replicas)
    async with reconciling(world, autoscaler(**spec)) as client:
        assert sizes(client) == [size]
        assert said(client) == [("SuccessfulRescale", f"New size: {size}; reason: {reason}")]
        assert set(conditions(client)) == {"AbleToScale"}


async def test_a_target_of_no_replicas_is_left_alone(world: World) -> None:
    set_scale(world, 0)
    before = {"conditions": [{"type": "ScaledToZero", "status": "True"}], "desiredReplicas": 3}
    async with reconciling(world, autoscaler(status=before)) as client:
        assert sizes(client) == []
        assert conditions(client) == {
            "AbleToScale": (
                "True", "SucceededGetScale",
                "the HPA controller was able to get the target's current scale",
            ),
            "ScalingActive": (
                "False", "ScalingDisabled",
                "scaling is disabled since the replica count of the target is zero",
            ),
        }  # fmt: skip
        assert status(client).get("desiredReplicas", 0) == 0


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ({"apiVersion": "apps/v1", "kind": "Boat", "name": "web"},
         'no matches for kind "Boat" in group "apps"'),
        ({"apiVersion": "none/v1", "kind": "Deployment", "name": "web"},
         'no matches for kind "Deployment" in group "none"'),
        ({"apiVersion": "a/b/c", "kind": "Deployment", "name": "web"},
         "unexpected GroupVersion string: a/b/c"),
        ({"apiVersion": "apps/v1", "kind": "Deployment", "name": "gone"},
         'deployments.apps "gone" not found'),
    ],
)  # fmt: skip
async def test_a_target_that_cannot_be_read(world: World, target: dict[str, str], why: str) -> None:
    serve(world, "/apis/none", NotFoundError("the server could not find the requested resource"))
    gone = NotFoundError.of("deployments", "gone", group="apps")
    serve(world, SCALE.replace("web", "gone"), gone)
    async with reconciling(world, autoscaler(scaleTargetRef=target)) as client:
        assert said(client) == [("FailedGetScale", why)]
        message = f"the HPA controller was unable to get the target's current scale: {why}"
        assert conditions(client) == {"AbleToScale": ("False", "FailedGetScale", message)}


async def test_a_target_in_the_core_group(world: World) -> None:
    serve(world, "/api", {"versions": ["v1"]})
    resources = [{"name": "replicationcontrollers", "kind": "ReplicationController"}]
    serve(world, "/api/v1", {"resources": resources})
    path = "/api/v1/namespaces/default/replicationcontrollers/r%2Fx/scale"
    serve(world, path, {"spec": {"replicas": 0}})
    target = {"kind": "ReplicationController", "name": "r/x"}
    async with reconciling(world, autoscaler(scaleTargetRef=target)) as client:
        assert conditions(client)["ScalingActive"][1] == "ScalingDisabled"


EMPTY = "unable to get metrics for resource cpu: no metrics returned from resource metrics API"
FAILED = "the HPA was unable to compute the replica count: "


async def test_without_metrics_nothing_is_scaled(world: World) -> None:
    set_usage(world)
    async with reconciling(world, autoscaler()) as client:
        assert sizes(client) == []
        cause = f"failed to get cpu utilization: {EMPTY}"
        assert said(client) == [
            ("FailedGetResourceMetric", cause),
            ("FailedComputeMetricsReplicas",
             "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource "
             f"metric value: {cause}"),
        ]  # fmt: skip
        assert conditions(client)["ScalingActive"] == (
            "False", "FailedGetResourceMetric", FAILED + cause,
        )  # fmt: skip
        assert status(client)["currentMetrics"] == [{"type": ""}]
        assert status(client)["currentReplicas"] == 2


async def test_an_unreachable_metrics_api(world: World) -> None:
    serve(world, METRICS, StatusError("the server is currently unable to handle the request"))
    async with reconciling(world, autoscaler()) as client:
        assert said(client)[0] == (
            "FailedGetResourceMetric",
            "failed to get cpu utilization: unable to get metrics for resource cpu: unable to "
            "fetch metrics from resource metrics API: the server is currently unable to handle the "
            "request",
        )


def named(type_: str, field: str, target: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": type_, field: {"metric": {"name": "m"}, "target": target, **more}}


CUSTOM = (
    "unable to fetch metrics from custom metrics API: no custom metrics API "
    "(custom.metrics.k8s.io) registered"
)
EXTERNAL = (
    "unable to fetch metrics from external metrics API: the server could not find the requested "
    "resource (get m.external.metrics.k8s.io)"
)
QUEUE = {"name": "m", "selector": {
    "matchLabels": {"b": "2", "a": "1"},
    "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}]}}  # fmt: skip
SHOWN = (
    "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:"
    "[]LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}"
)


@pytest.mark.parametrize(
    ("metric", "reason", "cause", "text"),
    [
        (named("Pods", "pods", {"averageValue": "1"}), "FailedGetPodsMetric",
         f"unable to get metric m: {CUSTOM}",
         f"failed to get pods metric value: unable to get metric m: {CUSTOM}"),
        (named("Object", "object", {"type": "Value", "value": "1"},
               describedObject={"kind": "Service", "name": "s"}), "FailedGetObjectMetric",
         f"unable to get metric m: {CUSTOM} on Service default/s",
         f"failed to get object metric value: unable to get metric m: {CUSTOM} on Service "
         "default/s"),
        (named("External", "external", {"value": "1"}), "FailedGetExternalMetric",
         f"unable to get external metric default/m/nil: {EXTERNAL}",
         "failed to get m external metric value: failed to get external metric m: unable to get "
         f"external metric default/m/nil: {EXTERNAL}"),
        (named("External", "external", {"averageValue": "1"}, metric=QUEUE),
         "FailedGetExternalMetric",
         f"unable to get external metric default/m/{SHOWN}: {EXTERNAL}",
         "failed to get m external metric value: failed to get m external metric: unable to get "
         f"external metric default/m/{SHOWN}: {EXTERNAL}"),
        ({"type": "X"}, "InvalidMetricSourceType", 'unknown metric source type "X"',
         'unknown metric source type "X"'),
    ],
)  # fmt: skip
async def test_metrics_whose_api_is_not_served(
    world: World, metric: dict[str, Any], reason: str, cause: str, text: str
) -> None:
    async with reconciling(world, autoscaler(metrics=[metric])) as client:
        assert said(client) == [
            (reason, cause),
            ("FailedComputeMetricsReplicas",
             f"invalid metrics (1 invalid out of 1), first error is: {text}"),
        ]  # fmt: skip
        assert conditions(client)["ScalingActive"] == ("False", reason, FAILED + cause)


@pytest.mark.parametrize(("milli", "expected"), [(900, [4]), (100, [])])
async def test_a_failed_metric_holds_back_the_way_down_alone(
    world: World, milli: int, expected: list[int]
) -> None:
    set_usage(world, milli, milli)
    metrics = [CPU, named("Pods", "pods", {"averageValue": "1"})]
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 0, "policies": [
        {"type": "Percent", "value": 100, "periodSeconds": 15}]}, "scaleUp": {"policies": [
            {"type": "Percent", "value": 100, "periodSeconds": 15}]}}  # fmt: skip
    async with reconciling(world, autoscaler(metrics=metrics, behavior=behavior)) as client:
        assert sizes(client) == expected
        active = conditions(client)["ScalingActive"]
        assert active[0] == ("True" if expected else "False")
        assert [one["type"] for one in status(client)["currentMetrics"]] == ["Resource", ""]


async def test_the_metric_that_calls_for_most_decides(world: World) -> None:
    set_usage(world, 900, 900)
    container = {"type": "ContainerResource", "containerResource": {
        "name": "cpu", "container": "c",
        "target": {"type": "Utilization", "averageUtilization": 60}}}  # fmt: skip
    memory = {
        "type": "Resource",
        "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "256Ki"}},
    }
    async with reconciling(world, autoscaler(metrics=[container, memory])) as client:
        # Eight for the memory, of which four at once.
        assert sizes(client) == [4]
        assert said(client)[0][1] == "New size: 4; reason: memory resource above target"
        assert conditions(client)["ScalingLimited"] == (
            "True", "ScaleUpLimit",
            "the desired replica count is increasing faster than the maximum scale rate",
        )  # fmt: skip
        assert status(client)["currentMetrics"] == [
            {"type": "ContainerResource", "containerResource": {
                "name": "cpu", "container": "c",
                "current": {"averageUtilization": 90, "averageValue": "900m"}}},
            {"type": "Resource", "resource": {
                "name": "memory", "current": {"averageValue": "1Mi"}}},
        ]  # fmt: skip


async def test_a_container_without_metrics(world: World) -> None:
    set_usage(world, 900, 900)
    container = {"type": "ContainerResource", "containerResource": {
        "name": "cpu", "container": "x", "target": {"averageUtilization": 60}}}  # fmt: skip
    async with reconciling(world, autoscaler(metrics=[container])) as client:
        cause = (
            "failed to get cpu utilization: did not receive metrics for targeted pods (pods might "
            "be unready)"
        )
        assert said(client) == [
            ("FailedGetContainerResourceMetric", cause),
            ("FailedComputeMetricsReplicas",
             "invalid metrics (1 invalid out of 1), first error is: failed to get x container "
             f"metric value: {cause}"),
        ]  # fmt: skip


async def test_tolerances_of_the_behavior(world: World) -> None:
    set_usage(world, 540, 540)
    policies = [{"type": "Pods", "value": 1, "periodSeconds": 60}]
    behavior = {
        "scaleUp": {"tolerance": "50m", "policies": policies}, "scaleDown": {"policies": policies},
    }  # fmt: skip
    async with reconciling(world, autoscaler(behavior=behavior)) as client:
        assert sizes(client) == [3]
        # Within the minute no other pod may follow.
        set_scale(world, 3)
        set_usage(world, 900, 900, 900)
        await world.settled(15)
        await world.settled(1)
        assert sizes(client) == [3]
        assert conditions(client)["ScalingLimited"][:2] == ("True", "ScaleUpLimit")


@pytest.mark.parametrize(
    ("selector", "reason", "event", "message"),
    [
        ("", "SelectorRequired", "selector is required",
         "the HPA target's scale is missing a selector"),
        ("a in", "InvalidSelector",
         "couldn't convert selector into a corresponding internal selector object: ",
         "couldn't convert selector into a corresponding internal selector object: "),
    ],
)  # fmt: skip
async def test_selectors_that_select_nothing(
    world: World, selector: str, reason: str, event: str, message: str
) -> None:
    set_scale(world, 2, selector)
    async with reconciling(world, autoscaler()) as client:
        first, second = said(client)
        assert first[0] == reason
        assert first[1].startswith(event)
        assert second[0] == "FailedComputeMetricsReplicas"
        active = conditions(client)["ScalingActive"]
        assert active[:2] == ("False", "InvalidSelector")
        assert active[2].startswith(message)


async def test_two_autoscalers_of_the_same_pods(world: World) -> None:
    set_usage(world, 500, 500)
    async with reconciling(world, autoscaler("h"), autoscaler("i")) as client:
        await world.settled(15)
        why = "pods by selector app=web are controlled by multiple HPAs: [{h default} {i default}]"
        assert ("AmbiguousSelector", why) in said(client)
        assert conditions(client)["ScalingActive"] == ("False", "AmbiguousSelector", why)
        client.drop(HORIZONTAL_POD_AUTOSCALERS, "i")
        await world.settled(15)
        await world.settled(15)
        assert conditions(client)["ScalingActive"][0] == "True"


async def test_a_scale_that_changed_is_written_again(world: World) -> None:
    set_usage(world, 900, 700)
    world.client.answers[PUT] = ConflictError("the object has been modified")
    async with reconciling(world, autoscaler()) as client:
        assert sizes(client) == [4] * 5
        why = "the object has been modified"
        assert said(client) == [(
            "FailedRescale",
            "New size: 4; reason: cpu resource utilization (percentage of request) above target; "
            f"error: {why}",
        )]  # fmt: skip
        assert conditions(client)["AbleToScale"] == (
            "False", "FailedUpdateScale",
            f"the HPA controller was unable to update the target scale: {why}",
        )  # fmt: skip
        assert status(client).get("desiredReplicas", 0) == 0


async def test_a_status_that_cannot_be_written(world: World) -> None:
    set_usage(world, 500, 500)
    world.client.failures.append(("patch", "horizontalpodautoscalers", StatusError("no")))
    async with reconciling(world, autoscaler()) as client:
        assert said(client) == [("FailedUpdateStatus", "no")]
        await world.settled(15)
        assert conditions(client)["AbleToScale"][0] == "True"


def serve_custom(world: World, path: str, *values: str) -> None:
    """Serve a custom metric with these values: of p0, p1, …, or of one object."""
    versions = [{"groupVersion": f"custom.metrics.k8s.io/{one}"} for one in ("v9", "v1beta1")]
    serve(world, "/apis/custom.metrics.k8s.io", {"versions": versions})
    serve(world, f"{CUSTOM_PATH}/{path}", {"items": [
        {"describedObject": {"name": f"p{index}"}, "value": value,
         "timestamp": format_time(START)}
        for index, value in enumerate(values)
    ]})  # fmt: skip


async def test_custom_metrics_of_pods(world: World) -> None:
    set_usage(world, 0, 0)
    serve_custom(world, "pods/*/m", "3", "5")
    metric = named("Pods", "pods", {"type": "AverageValue", "averageValue": "2"})
    async with reconciling(world, autoscaler(metrics=[metric])) as client:
        assert sizes(client) == [4]
        assert said(client) == [
            ("SuccessfulRescale", "New size: 4; reason: pods metric m above target")
        ]
        assert status(client)["currentMetrics"] == [
            {"type": "Pods", "pods": {"metric": {"name": "m"}, "current": {"averageValue": "4"}}}
        ]
        (asked,) = [r for r in client.requests if r.key == f"{CUSTOM_PATH}/pods/*/m"]
        assert asked.more["query"] == {"labelSelector": "app=web", "metricLabelSelector": ""}


@pytest.mark.parametrize(
    ("metric", "path", "size", "title", "current"),
    [
        (named("Object", "object", {"type": "Value", "value": "100"},
               describedObject={"apiVersion": "apps/v1", "kind": "Deployment", "name": "s"}),
         "deployments.apps/s/m", 3, "Deployment metric m", {"value": "150"}),
        (named("Object", "object", {"type": "AverageValue", "averageValue": "50"}, metric=QUEUE,
               describedObject={"apiVersion": "v1", "kind": "Namespace", "name": "other"}),
         "metrics/m", 3, f"external metric m({SHOWN})", {"averageValue": "75"}),
    ],
)  # fmt: skip
async def test_custom_metrics_of_an_object(
    world: World, metric: dict[str, Any], path: str, size: int, title: str, current: Any
) -> None:
    set_usage(world, 0, 0)
    serve_custom(world, path, "150")
    async with reconciling(world, autoscaler(metrics=[metric])) as client:
        assert sizes(client) == [size]
        assert said(client)[0][1] == f"New size: {size}; reason: {title} above target"
        shown = status(client)["currentMetrics"][0]["object"]
        assert shown["current"] == current
        assert shown["describedObject"]["name"] == metric["object"]["describedObject"]["name"]


@pytest.mark.parametrize(
    ("target", "size", "current"),
    [
        ({"type": "Value", "value": "10"}, 4, {"value": "20"}),
        ({"type": "Value", "value": "21"}, None, {"value": "20"}),
        ({"type": "AverageValue", "averageValue": "6"}, 4, {"averageValue": "10"}),
        ({"type": "AverageValue", "averageValue": "10"}, None, {"averageValue": "10"}),
    ],
)
async def test_external_metrics_are_summed(
    world: World, target: dict[str, str], size: int | None, current: dict[str, str]
) -> None:
    set_usage(world, 0, 0)
    serve(world, f"{EXTERNAL_PATH}/m", {"items": [{"value": "15"}, {"value": "5"}]})
    metric = named("External", "external", target, metric=QUEUE)
    async with reconciling(world, autoscaler(metrics=[metric])) as client:
        assert sizes(client) == ([] if size is None else [size])
        assert status(client)["currentMetrics"] == [
            {"type": "External", "external": {"metric": QUEUE, "current": current}}
        ]
        asked = [r for r in client.requests if r.key == f"{EXTERNAL_PATH}/m"]
        assert asked[0].more["query"] == {"labelSelector": "a=1,b=2,k in (x,y)"}


@pytest.mark.parametrize(
    ("metric", "cause"),
    [
        (named("Pods", "pods", {"averageValue": "2"}),
         "unable to get metric m: no metrics returned from custom metrics API"),
        (named("External", "external", {"value": "1"}),
         "unable to get external metric default/m/nil: no metrics returned from external metrics "
         "API"),
        (named("Object", "object", {"type": "Value", "value": "1"},
               describedObject={"apiVersion": "apps/v1", "kind": "Boat", "name": "s"}),
         "unable to get metric m: unable to fetch metrics from custom metrics API: no matches for "
         'kind "Boat" in group "apps" on Boat default/s'),
        (named("Pods", "pods", {"averageValue": "2"}, metric={
            "name": "m", "selector": {"matchExpressions": [{"key": "k", "operator": "Near"}]}}),
         "unable to get metric m: unable to fetch metrics from custom metrics API: "
         '"Near" is not a valid label selector operator'),
    ],
)  # fmt: skip
async def test_other_metrics_that_are_not_there(
    world: World, metric: dict[str, Any], cause: str
) -> None:
    set_usage(world, 0, 0)
    serve_custom(world, "pods/*/m")
    serve(world, f"{EXTERNAL_PATH}/m", {"items": []})
    async with reconciling(world, autoscaler(metrics=[metric])) as client:
        assert said(client)[0][1] == cause
