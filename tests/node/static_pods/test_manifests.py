from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from moorage.node.pod_facts.sources import is_critical, is_static
from moorage.node.static_pods.manifests import parse_manifest, read_manifests

FILE = Path("/manifests/web.yaml")


def manifest(name: str = "web", meta: Any = None, **spec: Any) -> bytes:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **(meta or {})},
            "spec": {"containers": [{"name": "app", "image": "app:1"}], **spec},
        }
    ).encode()


def test_a_manifest_is_a_defaulted_pod_of_this_node() -> None:
    pod = parse_manifest(manifest(tolerations=[{"key": "a"}]), FILE, "n1")
    meta, spec = pod.metadata, pod.spec
    assert (meta.name, meta.namespace, spec.node_name) == ("web-n1", "default", "n1")
    assert meta.annotations == {
        "kubernetes.io/config.hash": meta.uid,
        "kubernetes.io/config.source": "file",
    }
    assert (spec.restart_policy, spec.containers[0].termination_message_path) == (
        "Always",
        "/dev/termination-log",
    )
    keys = {(item.key or "", item.operator, item.effect or "") for item in spec.tolerations}
    assert ("", "Exists", "NoExecute") in keys
    assert "a" in {key for key, _, _ in keys}
    assert is_static(pod)
    assert is_critical(pod)


def test_the_uid_is_that_of_the_content_the_file_and_the_node() -> None:
    uid = parse_manifest(manifest(), FILE, "n1").metadata.uid
    assert parse_manifest(manifest(), FILE, "n1").metadata.uid == uid
    for content, file, node in (
        (manifest(hostNetwork=True), FILE, "n1"),
        (manifest(), Path("/other"), "n1"),
        (manifest(), FILE, "n2"),
    ):
        assert parse_manifest(content, file, node).metadata.uid != uid
    assert parse_manifest(manifest(meta={"uid": "u"}), FILE, "n1").metadata.uid == "u"


SECRET = {"name": "v", "secret": {"secretName": "s"}}
CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
MAP = {"name": "v", "configMap": {"name": "m"}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [", "line 2: did not find"),
        (b"kind: List", "it is no Pod"),
        (b"", "it is no Pod"),
        (manifest(name=""), "name is needed for the pod"),
        (manifest(name="No"), "invalid pod: "),
        (manifest(hostNetwork="yes"), "Expected `bool"),
        (manifest(containers=[]), "invalid pod: spec.containers: Required value"),
        (manifest(volumes=[SECRET]), "static pods may not reference secrets"),
        (manifest(volumes=[MAP]), "static pods may not reference configmaps"),
        (manifest(volumes=[CLAIM]), "static pods may not reference persistentvolumeclaims"),
        (manifest(serviceAccountName="a"), "static pods may not reference serviceaccounts"),
    ],
)
def test_what_is_no_static_pod_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_manifest(content, FILE, "n1")
    assert message in str(caught.value)


def test_a_bad_file_does_not_affect_the_others(tmp_path: Path) -> None:
    assert read_manifests(tmp_path / "gone", "n1").pods == {}
    (tmp_path / "a.yaml").write_bytes(manifest("a"))
    (tmp_path / "b.yaml").write_bytes(manifest("b"))
    (tmp_path / "b2.yaml").write_bytes(manifest("b", hostNetwork=True))
    (tmp_path / ".hidden").write_bytes(manifest("c"))
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b" " * (10 * 1024 * 1024 + 1))
    found = read_manifests(tmp_path, "n1")
    assert sorted(pod.metadata.name for pod in found.pods.values()) == ["a-n1", "b-n1"]
    assert [problem.split(": ", 1)[1] for problem in found.problems] == [
        "another file has a pod named default/b-n1",
        "it is larger than 10 MiB",
        "it is not a regular file",
    ]
