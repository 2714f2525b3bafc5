"""Runtimes come, change and go by `moor runtime`, proven by a sandbox, beside pods that run."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.running import RunningCluster, pod, runtime_class, until

pytestmark = [pytest.mark.runtime, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def name(whole_cluster: RunningCluster) -> Iterator[str]:
    """The name of a handler, its class and a pod; all are gone afterwards."""
    name = f"i-{uuid.uuid4().hex[:8]}"
    yield name
    for kind in ("pod", "runtimeclass"):
        whole_cluster.kubectl("delete", kind, name, "--ignore-not-found")
    _file(whole_cluster, name).unlink(missing_ok=True)
    shutil.rmtree(whole_cluster.data_dir / "runtimes" / name, ignore_errors=True)


def _file(cluster: RunningCluster, name: str) -> Path:
    return cluster.data_dir / "engine" / "handlers.d" / f"{name}.toml"


def _container(cluster: RunningCluster, name: str) -> tuple[Any, ...]:
    status = cluster.get("pod", name)["status"]["containerStatuses"][0]
    return status["containerID"], status["restartCount"], status["state"]


def _crun() -> str:
    program = shutil.which("crun")
    assert program is not None
    return program


def test_a_runtime_is_added_upgraded_and_removed_under_a_running_pod(
    whole_cluster: RunningCluster, name: str, tmp_path: Path
) -> None:
    added = whole_cluster.moor("runtime", "add", name, "--binary", _crun(), "--version", "1")
    assert f"handler {name} added: version 1" in added.stdout
    whole_cluster.apply(runtime_class(name, name), pod(name, runtime_class=name))
    whole_cluster.wait_ready(name)
    before = _container(whole_cluster, name)
    again = whole_cluster.moor("runtime", "add", name, "--binary", _crun(), status=1)
    assert "use `moor runtime upgrade`" in again.stderr

    archive = tmp_path / "crun.tar.gz"
    with tarfile.open(archive, "w:gz") as entries:
        entries.add(_crun(), "crun-2/bin/crun", filter=_plain)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    source = ("--archive", str(archive), "--program", "crun-2/bin/crun", "--version", "2")
    wrong = whole_cluster.moor("runtime", "upgrade", name, *source, "--sha256", "ab" * 32, status=1)
    assert "does not have the SHA-256 digest" in wrong.stderr
    whole_cluster.moor("runtime", "upgrade", name, *source, "--sha256", digest)
    assert "/2/crun-2/bin/crun" in _file(whole_cluster, name).read_text()
    versions = whole_cluster.data_dir / "runtimes" / name
    assert {path.name for path in versions.iterdir()} == {"1", "2"}
    assert _container(whole_cluster, name) == before
    assert whole_cluster.kubectl("exec", name, "--", "echo", "alive").stdout == "alive\n"

    refused = whole_cluster.moor("runtime", "remove", name, status=1)
    assert f"pods run under handler {name}: default/{name}" in refused.stderr
    removed = whole_cluster.moor("runtime", "remove", name, "--force")
    assert f"RuntimeClass {name} stays: 1 of its pods go on" in removed.stderr
    assert "sandboxes run under it" in removed.stderr
    assert whole_cluster.kubectl("exec", name, "--", "echo", "alive").stdout == "alive\n"
    whole_cluster.kubectl("delete", "pod", name)
    until(
        lambda: "sandboxes run under it" not in _removed(whole_cluster, name).stderr,
        "its sandbox's end",
    )
    assert not versions.exists()


def _removed(cluster: RunningCluster, name: str) -> Any:
    return cluster.moor("runtime", "remove", name)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    return entry


def test_an_upgrade_that_its_proof_refutes_leaves_everything_as_before(
    whole_cluster: RunningCluster, name: str, tmp_path: Path
) -> None:
    whole_cluster.moor("runtime", "add", name, "--binary", _crun(), "--version", "1")
    before = _file(whole_cluster, name).read_bytes()
    broken = tmp_path / "crun"
    broken.write_text(
        f'#!/bin/sh\nif echo "$*" | grep -qw create; then echo "out of order" >&2; exit 1; fi\n'
        f'exec {_crun()} "$@"\n'
    )
    broken.chmod(0o755)
    refuted = whole_cluster.moor(
        "runtime", "upgrade", name, "--binary", str(broken), "--version", "2", status=1
    )
    assert f"handler {name} does not work" in refuted.stderr
    assert _file(whole_cluster, name).read_bytes() == before
    versions = whole_cluster.data_dir / "runtimes" / name
    assert {path.name for path in versions.iterdir()} == {"1"}
    broken.chmod(0o777)
    distrusted = whole_cluster.moor("runtime", "upgrade", name, "--binary", str(broken), status=1)
    assert "can be written by others" in distrusted.stderr
    whole_cluster.moor("runtime", "remove", name)
    assert not _file(whole_cluster, name).exists()


def test_a_handler_that_was_not_added_is_not_removed(whole_cluster: RunningCluster) -> None:
    refused = whole_cluster.moor("runtime", "remove", "crun", status=1)
    assert "was not added by `moor runtime add`" in refused.stderr
    assert _file(whole_cluster, "crun").exists()
    missing = whole_cluster.moor("runtime", "remove", "nix", status=1)
    assert "there is no handler nix" in missing.stderr
