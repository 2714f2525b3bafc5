from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.volumes import ResourceFieldSelector
from moorage.node.config.downward import DownwardInputs, field_value, listed, resource_value
from moorage.node.config.errors import ConfigError
from tests.node.objects import UID, WHERE, a_container, a_pod, wire_container

POD = a_pod(
    wire_container(
        resources={
            "requests": {"cpu": "250m", "memory": "64Mi", "hugepages-2Mi": "4Mi"},
            "limits": {"cpu": "1500m", "memory": "100M", "hugepages-2Mi": "4Mi"},
        }
    ),
    meta={"labels": {"b": "2", "a": "1"}, "annotations": {"note": 'say "hi"\n'}},
    nodeName="n1",
    serviceAccountName="robot",
)


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("metadata.name", "web"),
        ("metadata.namespace", "shop"),
        ("metadata.uid", UID),
        ("metadata.labels", 'a="1"\nb="2"'),
        ("metadata.annotations", 'note="say \\"hi\\"\\n"'),
        ("metadata.labels['a']", "1"),
        ("metadata.labels['gone']", ""),
        ("metadata.annotations['note']", 'say "hi"\n'),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "robot"),
        ("status.hostIP", "10.0.0.1"),
        ("status.hostIPs", "10.0.0.1"),
        ("status.podIP", "10.1.0.5"),
        ("status.podIPs", "10.1.0.5,fd00::5"),
    ],
)
def test_fields(path: str, wanted: str) -> None:
    assert field_value(POD, path, WHERE) == wanted


@pytest.mark.parametrize("path", ["", "spec.hostname", "metadata.finalizers['x']", "status.phase"])
def test_other_fields_are_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="unsupported fieldPath"):
        field_value(POD, path, WHERE)


def test_a_pod_without_address_yet_has_empty_ones() -> None:
    nowhere = DownwardInputs((), (), {})
    assert [
        field_value(POD, f"status.{name}", nowhere)
        for name in ("podIP", "podIPs", "hostIP", "hostIPs")
    ] == [""] * 4


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("tab\t", '"tab\\t"'),
        ("back\\slash", '"back\\\\slash"'),
        ("bell\a and \x01", '"bell\\a and \\x01"'),
        ("delete\x7f", '"delete\\x7f"'),
        ("grüße 日本", '"grüße 日本"'),
        ("zero\u200bwidth", '"zero\\u200bwidth"'),
        ("private\U000f0000", '"private\\U000f0000"'),
    ],
)
def test_values_are_quoted_as_go_quotes(value: str, wanted: str) -> None:
    assert listed({"k": value}) == f"k={wanted}"


def selector(resource: str, divisor: str = "", container: str = "") -> ResourceFieldSelector:
    return msgspec.convert(
        {"resource": resource, "divisor": divisor, "containerName": container},
        ResourceFieldSelector,
    )


@pytest.mark.parametrize(
    ("resource", "divisor", "wanted"),
    [
        ("requests.cpu", "", "1"),
        ("requests.cpu", "1m", "250"),
        ("limits.cpu", "1", "2"),
        ("limits.cpu", "1m", "1500"),
        ("requests.memory", "", "67108864"),
        ("requests.memory", "1Mi", "64"),
        ("limits.memory", "1Mi", "96"),
        ("limits.memory", "1Gi", "1"),
        ("limits.memory", "0", "100000000"),
        ("limits.hugepages-2Mi", "1Mi", "4"),
        ("requests.ephemeral-storage", "", "0"),
        # Not set: what the node can give.
        ("limits.ephemeral-storage", "1Gi", "100"),
    ],
)
def test_resources_are_rounded_up_to_whole_divisors(
    resource: str, divisor: str, wanted: str
) -> None:
    container = POD.spec.containers[0]
    assert resource_value(POD, container, selector(resource, divisor), WHERE) == wanted


def test_a_file_names_its_container() -> None:
    assert resource_value(POD, None, selector("limits.cpu", "1m", "app"), WHERE) == "1500"


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        (selector("limits.cpu", container="gone"), "container gone not found"),
        (selector("limits.pods"), "unsupported container resource : limits.pods"),
        (selector("usage.cpu"), "unsupported container resource : usage.cpu"),
    ],
)
def test_other_resources_are_refused(wanted: Any, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resource_value(POD, a_container(), wanted, WHERE)
    assert str(caught.value) == complaint
