"""Handlers are files: they come, break and go while the cluster runs, and no pod is touched."""

from __future__ import annotations

import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.running import RunningCluster, pod, runtime_class, until

pytestmark = pytest.mark.runtime


@pytest.fixture
def name(whole_cluster: RunningCluster) -> Iterator[str]:
    """The name of a handler, its file, its class and a pod; all are gone afterwards."""
    name = f"h-{uuid.uuid4().hex[:8]}"
    yield name
    _file(whole_cluster, name).unlink(missing_ok=True)
    for kind, object_name in (("pod", name), ("pod", f"{name}-late"), ("runtimeclass", name)):
        whole_cluster.remove(kind, object_name)


def _file(cluster: RunningCluster, name: str) -> Path:
    return cluster.data_dir / "engine" / "handlers.d" / f"{name}.toml"


def _write(cluster: RunningCluster, name: str, text: str) -> None:
    """Put a file there whole, as an editor or a package does."""
    path = _file(cluster, name)
    scratch = path.with_suffix(".new")
    scratch.write_text(text)
    scratch.replace(path)


def _definition() -> str:
    return f'adapter = "oci"\nbinary = "{shutil.which("crun")}"\n'


def _node_handlers(cluster: RunningCluster) -> set[str]:
    status = cluster.get("node", "n1")["status"]
    return {handler.get("name", "") for handler in status["runtimeHandlers"]}


def _container(cluster: RunningCluster, name: str) -> tuple[Any, ...]:
    status = cluster.get("pod", name)["status"]["containerStatuses"][0]
    return status["containerID"], status["restartCount"], status["state"]


def _runtimes(cluster: RunningCluster) -> subprocess.CompletedProcess[str]:
    return cluster.moor("runtimes")


def test_a_handler_comes_with_its_file_and_goes_with_it(
    whole_cluster: RunningCluster, name: str
) -> None:
    whole_cluster.apply(runtime_class(name, name), pod(name, runtime_class=name))
    began = time.monotonic()
    _write(whole_cluster, name, _definition())
    until(lambda: name in _node_handlers(whole_cluster), "the handler")
    print(f"a handler's file was on the node after {time.monotonic() - began:.2f} s")
    # The pod that waited for it starts by itself.
    whole_cluster.wait_ready(name)
    before = _container(whole_cluster, name)
    assert str(_file(whole_cluster, name)) in _runtimes(whole_cluster).stdout

    _file(whole_cluster, name).unlink()
    until(lambda: name not in _node_handlers(whole_cluster), "its end")
    whole_cluster.apply(pod(f"{name}-late", runtime_class=name))
    whole_cluster.kubectl(
        "wait", "--for=condition=PodScheduled=false", f"pod/{name}-late", "--timeout=10s"
    )
    conditions = whole_cluster.get("pod", f"{name}-late")["status"]["conditions"]
    message = next(
        condition["message"] for condition in conditions if condition["type"] == "PodScheduled"
    )
    assert f'1 node(s) lack runtime handler "{name}"' in message
    assert _container(whole_cluster, name) == before
    assert whole_cluster.kubectl("exec", name, "--", "echo", "alive").stdout == "alive\n"


def test_broken_file_is_reported_and_its_previous_content_stays_in_force(
    whole_cluster: RunningCluster, name: str
) -> None:
    _write(whole_cluster, name, _definition())
    until(lambda: name in _node_handlers(whole_cluster), "the handler")
    _write(whole_cluster, name, "adapter = oci\n")
    until(lambda: "stays in effect" in _runtimes(whole_cluster).stderr, "a complaint")
    listing = _runtimes(whole_cluster)
    assert f"broken: {_file(whole_cluster, name)}:1: it is not TOML" in listing.stderr
    assert name in listing.stdout
    assert name in _node_handlers(whole_cluster)
    whole_cluster.apply(runtime_class(name, name), pod(name, runtime_class=name))
    whole_cluster.wait_ready(name)
    _write(whole_cluster, name, _definition())
    until(lambda: not _runtimes(whole_cluster).stderr, "no complaint any more")


def test_a_handler_whose_program_is_missing_says_what_to_do(
    whole_cluster: RunningCluster, name: str
) -> None:
    _write(whole_cluster, name, 'adapter = "oci"\nbinary = "/no/such/runtime"\n')
    until(lambda: name in _runtimes(whole_cluster).stdout, "the handler")
    shown = " ".join(_runtimes(whole_cluster).stdout.partition(name)[2].split())
    assert "/no/such/runtime is not an executable file" in shown
    assert name not in _node_handlers(whole_cluster)
