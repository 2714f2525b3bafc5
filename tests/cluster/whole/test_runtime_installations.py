"""A RuntimeInstallation comes, changes, fails and goes on a cluster's node, proven each time."""

from __future__ import annotations

import hashlib
import http.server
import shutil
import tarfile
import threading
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.running import RunningCluster, pod, runtime_class, until

pytestmark = [pytest.mark.runtime, pytest.mark.slow, pytest.mark.timeout(300)]

ARCHITECTURES = ("amd64", "arm64")


@pytest.fixture
def name(whole_cluster: RunningCluster) -> Iterator[str]:
    """The name of a handler and its installation; all is gone afterwards."""
    name = f"f-{uuid.uuid4().hex[:8]}"
    yield name
    whole_cluster.kubectl("delete", "pod", name, "--ignore-not-found", "--now")
    whole_cluster.kubectl("delete", "rti", name, "--ignore-not-found", "--timeout=60s")
    whole_cluster.kubectl("delete", "runtimeclass", name, "--ignore-not-found")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a directory with an archive of crun."""
    directory = tmp_path_factory.mktemp("served")
    with tarfile.open(directory / "crun.tar.gz", "w:gz") as entries:
        entries.add(_crun(), "bin/crun", filter=_plain)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(directory))

        def log_message(self, *_: Any) -> None:
            """Nothing is logged."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    return entry


def _crun() -> str:
    program = shutil.which("crun")
    assert program is not None
    return program


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _installation(name: str, source: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "runtime.moorage.dev/v1alpha1",
        "kind": "RuntimeInstallation",
        "metadata": {"name": name},
        "spec": {
            "handler": name,
            "sources": [{"architecture": one, **source} for one in ARCHITECTURES],
            **spec,
        },
    }


def _entry(cluster: RunningCluster, name: str) -> dict[str, Any]:
    nodes = cluster.get("rti", name).get("status", {}).get("nodes", [])
    return dict(nodes[0]) if nodes else {}


def _wait_phase(cluster: RunningCluster, name: str, phase: str, generation: int) -> dict[str, Any]:
    entry: dict[str, Any] = {}

    def is_there() -> bool:
        entry.clear()
        entry.update(_entry(cluster, name))
        return (entry.get("phase"), entry.get("observedGeneration")) == (phase, generation)

    until(is_there, f"{phase} of generation {generation}", within_s=60)
    return entry


def _condition(cluster: RunningCluster, name: str, type_: str) -> dict[str, Any]:
    conditions = cluster.get("rti", name).get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == type_), {})


def test_a_runtime_comes_from_an_address_changes_and_goes_with_its_object(
    whole_cluster: RunningCluster, name: str, address: str
) -> None:
    cluster = whole_cluster
    crun = Path(_crun()).read_bytes()
    source = {"path": _crun(), "sha256": _digest(crun), "version": "1"}
    cluster.apply(_installation(name, source))
    entry = _wait_phase(cluster, name, "Installed", 1)
    store = cluster.data_dir / "runtimes" / name
    assert entry["version"] == "1"
    assert entry["program"] == f"{store}/{_digest(crun)[:12]}/crun"
    until(lambda: _condition(cluster, name, "Ready").get("status") == "True", "Ready")
    assert _condition(cluster, name, "Degraded")["status"] == "False"
    table = cluster.kubectl("get", "rti", name).stdout.splitlines()
    assert table[0].split() == ["NAME", "HANDLER", "DESIRED", "INSTALLED", "FAILED", "READY", "AGE"]
    assert table[1].split()[:5] == [name, name, "1", "1", "True"]
    cluster.apply(runtime_class(name, name), pod(name, runtime_class=name))
    cluster.wait_ready(name)

    url = f"{address}/crun.tar.gz"
    wrong = {"url": url, "sha256": "ab" * 32, "program": "bin/crun", "version": "2"}
    cluster.apply(_installation(name, wrong))
    failed = _wait_phase(cluster, name, "Failed", 2)
    assert f"{url} does not have the SHA-256 digest " in failed["message"]
    until(lambda: _condition(cluster, name, "Degraded").get("status") == "True", "Degraded")
    assert cluster.kubectl("exec", name, "--", "echo", "alive").stdout == "alive\n"
    with urllib.request.urlopen(url) as archive:
        right = _digest(archive.read())
    # What the file has instead is no user's to know.
    assert right not in failed["message"]
    cluster.apply(_installation(name, {**wrong, "sha256": right}))
    entry = _wait_phase(cluster, name, "Installed", 3)
    assert entry["program"] == f"{store}/{right[:12]}/bin/crun"
    assert len(list(store.iterdir())) == 2

    cluster.kubectl("delete", "rti", name, "--wait=false")
    until(
        lambda: "pods run under" in _entry(cluster, name).get("message", ""),
        "the refusal", within_s=60,
    )  # fmt: skip
    cluster.kubectl("delete", "pod", name, "--now")
    until(lambda: not _exists(cluster, name), "the object's end", within_s=90)
    assert not store.exists()
    assert not (cluster.data_dir / "engine" / "handlers.d" / f"{name}.toml").exists()
    events = cluster.kubectl(
        "get", "events", "--field-selector", f"involvedObject.name={name}",
        "-o", "jsonpath={.items[*].reason}",
    ).stdout.split()  # fmt: skip
    assert {"NodeInstalled", "NodeFailed", "NodeRemoved", "Installed"} <= set(events)


def _exists(cluster: RunningCluster, name: str) -> bool:
    return bool(cluster.kubectl("get", "rti", name, "--ignore-not-found").stdout)


def test_a_runtime_that_its_proof_refutes_is_not_there(
    whole_cluster: RunningCluster, name: str, tmp_path: Path
) -> None:
    broken = tmp_path / "crun"
    broken.write_text("#!/bin/sh\necho out of order >&2\nexit 1\n")
    broken.chmod(0o755)
    source = {"path": str(broken), "sha256": _digest(broken.read_bytes())}
    whole_cluster.apply(_installation(name, source))
    failed = _wait_phase(whole_cluster, name, "Failed", 1)
    assert f"handler {name} does not work" in failed["message"]
    whole_cluster.kubectl("delete", "rti", name, "--timeout=60s")
    assert not _exists(whole_cluster, name)
    # Another try may have been under way.
    store = whole_cluster.data_dir / "runtimes" / name
    until(lambda: not store.exists(), "the end of the version", within_s=60)


def test_nodes_that_are_not_selected_have_nothing_and_policies_retain(
    whole_cluster: RunningCluster, name: str
) -> None:
    cluster = whole_cluster
    source = {"path": _crun(), "sha256": _digest(Path(_crun()).read_bytes())}
    label = f"{name}=yes"
    cluster.apply(_installation(name, source, nodeSelector={name: "yes"}, removalPolicy="Retain"))
    until(lambda: _condition(cluster, name, "Ready").get("status") == "True", "Ready")
    assert cluster.get("rti", name)["status"].get("desired", 0) == 0
    file = cluster.data_dir / "engine" / "handlers.d" / f"{name}.toml"
    try:
        cluster.kubectl("label", "node", "n1", label)
        _wait_phase(cluster, name, "Installed", 1)
        assert file.exists()
    finally:
        cluster.kubectl("label", "node", "n1", f"{name}-")
    until(lambda: not _entry(cluster, name), "the end of the entry")
    assert file.exists()
    cluster.kubectl("delete", "rti", name, "--timeout=60s")
    assert file.exists()
    cluster.moor("runtime", "remove", name)
