from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from moorage.node.pod_facts.sources import is_critical, is_static
from moorage.node.static_pods import parse_manifest, read_manifests

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
        (manifest(hostNetwork="yes"), "cannot unmarshal string into Go struct field"),
        (manifest(overhead={"cpu": ""}), "quantities must match"),
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


def _with(document: Any, value: Any) -> Iterator[Any]:
    """Yield copies of a document in which one value each is another."""
    yield value
    if isinstance(document, dict):
        for key, inner in document.items():
            yield from ({**document, key: changed} for changed in _with(inner, value))
    elif isinstance(document, list):
        for index, inner in enumerate(document):
            for changed in _with(inner, value):
                yield [*document[:index], changed, *document[index + 1 :]]


WHOLE: dict[str, Any] = {
    "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": 1},
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "a", "labelSelector": {
        "matchLabels": {"a": "b"}}, "whenUnsatisfiable": "DoNotSchedule"}],
    "overhead": {"cpu": "1"},
    "volumes": [{"name": "v", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/"}},
        {"name": "d", "downwardAPI": {"items": [{"path": "p", "fieldRef": {
            "fieldPath": "metadata.name"}}]}},
        {"name": "p", "projected": {"sources": [{"downwardAPI": {}}]}}],
    "containers": [{"name": "app", "image": "app:1",
        "env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
        "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
        "readinessProbe": {"exec": {"command": ["a"]}},
        "startupProbe": {"tcpSocket": {"port": 80}}}],
}  # fmt: skip


@pytest.mark.parametrize("value", [None, 1, "", "a", [], {}, [None], {"a": None}, True, 1.5])
def test_no_value_of_any_type_ends_the_agent(value: Any) -> None:
    assert parse_manifest(manifest(**WHOLE), FILE, "n1").spec.volumes[1].host_path is not None
    for document in _with(json.loads(manifest(**WHOLE)), value):
        with suppress(ValueError):
            parse_manifest(json.dumps(document).encode(), FILE, "n1")


def test_a_null_is_an_absent_value() -> None:
    pod = parse_manifest(manifest(securityContext=None, affinity=None), FILE, "n1")
    assert pod.spec.affinity is None
    pod = parse_manifest(manifest(volumes=[{"name": "v", "emptyDir": None}]), FILE, "n1")
    assert pod.spec.volumes[0].empty_dir is not None


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


@pytest.mark.parametrize("uid", ["../../etc", "/etc", "a/b", ".", "..", "a\n", "\uff11", "x" * 129])
def test_a_uid_is_a_plain_name_since_directories_have_it(uid: str) -> None:
    with pytest.raises(ValueError, match=r"metadata\.uid: letters, digits"):
        parse_manifest(manifest(meta={"uid": uid}), FILE, "n1")


def test_of_two_files_with_one_uid_the_second_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_bytes(manifest(name, meta={"uid": "same"}))
    found = read_manifests(tmp_path, "n1")
    assert [pod.metadata.name for pod in found.pods.values()] == ["a-n1"]
    assert found.problems == (
        f"static pod {tmp_path}/b.yaml: its metadata.uid same is also that of {tmp_path}/a.yaml",
    )
