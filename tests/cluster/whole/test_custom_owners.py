"""Objects that custom resources own go with them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.running import RunningCluster, until

pytestmark = pytest.mark.runtime


@pytest.fixture
def group(whole_cluster: RunningCluster) -> Iterator[str]:
    """A group with the kind Widget, which is gone afterwards."""
    group = f"g{uuid.uuid4().hex[:8]}.example"
    whole_cluster.apply({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True,
                          "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })  # fmt: skip
    whole_cluster.kubectl("wait", "--for=condition=established", f"crd/widgets.{group}")
    yield group
    whole_cluster.kubectl("delete", "crd", f"widgets.{group}", "--wait=false")


def test_what_a_custom_resource_owns_goes_with_it(
    whole_cluster: RunningCluster, group: str
) -> None:
    widget = f"widgets.{group}"
    whole_cluster.apply({
        "apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "w"},
    })  # fmt: skip
    uid = whole_cluster.get(widget, "w")["metadata"]["uid"]
    name = f"of-{uid[:8]}"
    reference = {"apiVersion": f"{group}/v1", "kind": "Widget", "name": "w", "uid": uid}
    whole_cluster.apply({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": [reference]},
    })  # fmt: skip
    whole_cluster.kubectl("delete", widget, "w")
    until(
        lambda: name not in whole_cluster.kubectl("get", "cm", "-o", "name").stdout,
        "the config map goes with its owner",
    )
