"""Custom resources as kubectl's users meet them: validation, explanation, columns."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.running import RunningCluster

STRING = {"type": "string"}
SCHEMA: dict[str, Any] = {
    "type": "object", "description": "A boat.",
    "properties": {
        "spec": {
            "type": "object", "description": "What the boat is to be.",
            "properties": {
                "sails": {
                    "type": "array", "description": "Sails, from bow to stern.",
                    "items": {
                        "type": "object", "required": ["name"],
                        "properties": {
                            "name": {**STRING, "description": "Name of the sail."},
                            "state": {**STRING, "enum": ["Set", "Reefed"]},
                        },
                    },
                },
                "maybe": {**STRING, "nullable": True},
                "length": {"type": "number", "minimum": 1, "maximum": 99.5},
            },
        },
    },
}  # fmt: skip


@pytest.fixture
def group(control_plane: RunningCluster) -> Iterator[str]:
    """The group of a definition of Boats, in which they are established and published."""
    group = f"g{uuid.uuid4().hex[:8]}.example.com"
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"boats.{group}"},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
            "versions": [{"name": "v1", "served": True, "storage": True,
                          "schema": {"openAPIV3Schema": SCHEMA}}],
        },
    }  # fmt: skip
    control_plane.kubectl("create", "-f", "-", stdin=json.dumps(definition))
    control_plane.kubectl("wait", "--for=condition=Established", f"crd/boats.{group}")
    yield group
    control_plane.kubectl("delete", "crd", f"boats.{group}", "--wait=false")


def boat(group: str, spec: dict[str, Any], name: str = "b") -> str:
    return json.dumps(
        {"apiVersion": f"{group}/v1", "kind": "Boat", "metadata": {"name": name}, "spec": spec}
    )


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"sails": [{"name": "jib", "state": "Torn"}]}, 'Unsupported value: "Torn"'),
        ({"rudder": True}, 'unknown field "spec.rudder"'),
        ({"sails": [{"state": "Set"}]}, "spec.sails[0].name: Required value"),
    ],
)
def test_what_does_not_fit_is_refused(
    control_plane: RunningCluster, group: str, spec: dict[str, Any], says: str
) -> None:
    for verb in ("create", "apply"):
        answer = control_plane.kubectl(verb, "-f", "-", stdin=boat(group, spec), fails=True)
        assert says in answer.stderr


def test_what_fits_is_created_and_applied(control_plane: RunningCluster, group: str) -> None:
    body = boat(group, {"sails": [{"name": "jib", "state": "Set"}], "length": 9.5})
    assert "created" in control_plane.kubectl("apply", "-f", "-", stdin=body).stdout
    assert "unchanged" in control_plane.kubectl("apply", "-f", "-", stdin=body).stdout
    changed = boat(group, {"sails": [{"name": "jib", "state": "Reefed"}], "length": 9.5})
    # 1 means that there are differences.
    control_plane.kubectl("diff", "-f", "-", stdin=changed, fails=True)
    assert "configured" in control_plane.kubectl("apply", "-f", "-", stdin=changed).stdout
    assert control_plane.get(f"boats.{group}", "b")["spec"]["sails"][0]["state"] == "Reefed"
    control_plane.kubectl("delete", f"boats.{group}", "b")


@pytest.mark.parametrize("form", ["plaintext", "plaintext-openapiv2"])
def test_fields_are_explained(control_plane: RunningCluster, group: str, form: str) -> None:
    version = ("--api-version", f"{group}/v1", "--output", form)
    answer = control_plane.kubectl("explain", "boats.spec.sails", *version)
    assert "Sails, from bow to stern." in answer.stdout
    assert "Name of the sail." in answer.stdout
    metadata = control_plane.kubectl("explain", "boats.metadata", *version).stdout
    assert "creationTimestamp" in metadata
    unknown = control_plane.kubectl("explain", "boats.spec.mast", *version, fails=True)
    assert 'field "mast" does not exist' in unknown.stderr


def test_groups_have_api_services(control_plane: RunningCluster, group: str) -> None:
    control_plane.kubectl("wait", "--for=create", f"apiservice/v1.{group}", "--timeout=30s")
    shown = control_plane.kubectl("get", "apiservices").stdout
    for name in (f"v1.{group}", "v1.apps"):
        (row,) = [line.split() for line in shown.splitlines() if line.startswith(f"{name} ")]
        assert row[1:3] == ["Local", "True"]
