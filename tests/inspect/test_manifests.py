from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moorage.api.errors import NotFoundError
from moorage.inspect.manifests import Applier, Manifest, ManifestError, read_manifests
from moorage.wire.client.resources import PODS, RUNTIME_CLASSES
from tests.controllers.cluster import running_cluster

CLASS: dict[str, Any] = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "crun"},
    "handler": "crun",
}
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {"runtimeClassName": "crun", "containers": [{"name": "app", "image": "app:1"}]},
}


def test_directories_are_read_by_file_name(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yaml", "c.txt"):
        document = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name[0]}}}\n"
        (tmp_path / name).write_text(f"---\n---\n{document}---\n{document}")
    manifests = read_manifests([tmp_path, tmp_path / "a.yaml"])
    assert [manifest.name for manifest in manifests] == ["a", "a", "b", "b", "a", "a"]
    assert "a.yaml, document 2" in manifests[0].place
    assert (manifests[0].namespace, manifests[0].api_version, manifests[0].kind) == (
        "default",
        "v1",
        "Pod",
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [", "expected"),
        (b"\xff\xfe\x00", "x.yaml"),
        (b"- 1", "document 1: apiVersion, kind and metadata.name are needed"),
        (b"kind: Pod\nmetadata: {name: x}", "are needed"),
        (b"apiVersion: v1\nkind: Pod\nmetadata: null", "are needed"),
        (b"apiVersion: v1\nkind: Pod\nmetadata: {name: ''}", "are needed"),
        (b"a: !!python/object:os.system {}", "has no JSON form"),
        (b"[" * 5000, "x.yaml"),
    ],
)
def test_files_without_objects(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(ManifestError, match=message):
        read_manifests([path])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="No such file"):
        read_manifests([tmp_path / "absent.yaml"])


async def test_objects_come_and_go_by_discovery(tmp_path: Path) -> None:
    runtime_class, pod = Manifest("a", CLASS), Manifest("b", POD)
    async with running_cluster(tmp_path) as cluster:
        applier = Applier(cluster.client)
        for _ in range(2):
            await applier.apply(runtime_class)
            await applier.apply(pod)
        assert (await cluster.client.get(RUNTIME_CLASSES, "crun")).handler == "crun"
        stored = await cluster.client.get(PODS, "web", "default")
        assert stored.spec.runtime_class_name == "crun"
        for _ in range(2):
            await applier.delete(pod)
            await applier.delete(runtime_class)
        with pytest.raises(NotFoundError):
            await cluster.client.get(RUNTIME_CLASSES, "crun")
        for wrong in ({"kind": "Ship"}, {"apiVersion": "sea.example/v1"}, {"apiVersion": "v9"}):
            with pytest.raises(ManifestError, match="c: the server does not serve"):
                await applier.apply(Manifest("c", POD | wrong))
