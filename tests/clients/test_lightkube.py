"""lightkube: typed resources, its three patches, watches and scales, against the control plane."""

from __future__ import annotations

import pytest
from lightkube import Client, KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource, load_in_cluster_generic_resources
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap
from lightkube.resources.node_v1 import RuntimeClass
from lightkube.types import PatchType

from tests.running import RunningCluster, until


@pytest.fixture
def api(control_plane: RunningCluster) -> Client:
    return Client(config=KubeConfig.from_file(str(control_plane.kubeconfig)), namespace="default")


def test_a_config_map_is_created_patched_applied_and_watched(api: Client) -> None:
    api.create(ConfigMap(metadata=ObjectMeta(name="lightkube"), data={"a": "1"}))
    api.patch(ConfigMap, "lightkube", {"data": {"b": "2"}}, patch_type=PatchType.MERGE)
    applied = ConfigMap(
        apiVersion="v1", kind="ConfigMap", metadata=ObjectMeta(name="lightkube"), data={"c": "3"}
    )
    api.apply(applied, field_manager="lightkube")
    assert api.get(ConfigMap, "lightkube").data == {"a": "1", "b": "2", "c": "3"}
    found = next(iter(api.watch(ConfigMap, fields={"metadata.name": "lightkube"})))
    assert (found[0], found[1].data) == ("ADDED", {"a": "1", "b": "2", "c": "3"})
    api.delete(ConfigMap, "lightkube")
    with pytest.raises(ApiError) as refused:
        api.get(ConfigMap, "lightkube")
    assert (refused.value.status.code, refused.value.status.reason) == (404, "NotFound")


def test_a_deployment_is_scaled_by_its_subresource(api: Client) -> None:
    labels = {"app": "lightkube"}
    template = PodTemplateSpec(
        metadata=ObjectMeta(labels=labels),
        spec=PodSpec(containers=[Container(name="main", image="none")]),
    )
    selector = LabelSelector(matchLabels=labels)
    api.create(
        Deployment(
            metadata=ObjectMeta(name="lightkube"),
            spec=DeploymentSpec(replicas=0, selector=selector, template=template),
        )
    )
    scale = Deployment.Scale(
        metadata=ObjectMeta(name="lightkube", namespace="default"), spec=ScaleSpec(replicas=2)
    )
    assert api.replace(scale).spec == ScaleSpec(replicas=2)
    until(
        lambda: getattr(api.get(Deployment, "lightkube").status, "replicas", None) == 2,
        "two replicas",
    )
    api.delete(Deployment, "lightkube")


def test_classes_and_definitions_are_listed_with_their_types(api: Client) -> None:
    api.create(RuntimeClass(metadata=ObjectMeta(name="lightkube"), handler="runc"))
    assert "runc" in {found.handler for found in api.list(RuntimeClass)}
    api.delete(RuntimeClass, "lightkube")
    assert list(api.list(CustomResourceDefinition)) is not None
    load_in_cluster_generic_resources(api)
    generic = create_namespaced_resource("apps", "v1", "Deployment", "deployments")
    assert [found.metadata.name for found in api.list(generic, labels={"app": "none"})] == []
