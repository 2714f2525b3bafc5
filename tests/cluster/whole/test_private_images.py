"""A private image on a node is only for pods that may pull it: a registry with a password."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.images.builds import Entry, directory, layer, oci_archive
from tests.engine.images.conftest import Registry, serving
from tests.running import (
    BUSYBOX,
    RunningCluster,
    pod,
    running,
    skip_without_kubectl,
    skip_without_runtimes,
    until,
)
from tests.subnets import free_subnet

pytestmark = pytest.mark.runtime

# Of the password s3cret, by bcrypt.
USERS = "me:$2b$04$xjO1BCOD9kKn0KGP31Sa2uK6KZY5JTqar/eAh6V3PYyZdZ3o508QW\n"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry that wants a name and a password."""
    directory = tmp_path_factory.mktemp("guarded")
    users = directory / "users"
    users.write_text(USERS)
    yield from serving(directory, f"auth: {{htpasswd: {{realm: test, path: {users}}}}}\n")


@pytest.fixture(scope="module")
def image(guarded: Registry, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A private image that can run."""
    program = shutil.which("busybox")
    if program is None:
        pytest.skip("busybox-static is not installed")
    content = layer(
        directory("bin"),
        Entry("bin/sleep", Path(program).read_bytes(), mode=0o755),
        Entry("secret", b"for the team only"),
    )
    archive = oci_archive(
        tmp_path_factory.mktemp("image") / "a.tar", ["localhost/a"], [content],
        {"Cmd": ["/bin/sleep", "3600"]},
    )  # fmt: skip
    return guarded.push(archive, "team/app:1", "--dest-creds", "me:s3cret")


def secret(name: str, registry: str, password: str) -> dict[str, Any]:
    auths = {"auths": {registry: {"username": "me", "password": password}}}
    text = base64.b64encode(json.dumps(auths).encode()).decode()
    return {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
        "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": text},
    }  # fmt: skip


def wanting(name: str, image: str, policy: str, secret_name: str = "") -> dict[str, Any]:
    container = {"image": image, "imagePullPolicy": policy, "command": ["/bin/sleep", "3600"]}
    pull: dict[str, Any] = {"imagePullSecrets": [{"name": secret_name}]} if secret_name else {}
    return pod(name, container=container, **pull)


def waiting(cluster: RunningCluster, name: str) -> dict[str, str]:
    statuses = cluster.get("pod", name)["status"].get("containerStatuses") or [{}]
    return dict(statuses[0].get("state", {}).get("waiting") or {})


def expect(cluster: RunningCluster, name: str, *reasons: str) -> str:
    """Wait until the pod's container waits for one of the reasons; the message."""
    until(lambda: waiting(cluster, name).get("reason") in reasons, f"{name}: {reasons}")
    return waiting(cluster, name)["message"]


def test_pulled_image_is_available_only_to_pods_that_may_pull_it(
    tmp_path: Path, guarded: Registry, image: str
) -> None:
    skip_without_kubectl()
    skip_without_runtimes()
    # While it is down, another test's cluster would take a network that was chosen by itself.
    network = str(free_subnet())
    with running(tmp_path / "data", node_name="n1", pod_network=network) as cluster:
        cluster.apply(secret("right", guarded.address, "s3cret"),
                      secret("same", guarded.address, "s3cret"),
                      secret("wrong", guarded.address, "guess"))  # fmt: skip
        cluster.apply(wanting("owner", image, "IfNotPresent", "right"))
        cluster.wait_ready("owner")
        cluster.kubectl("delete", "pod", "owner", "--wait")
        # The records outlive the agent and the machine's pods.
        cluster.moor("down")
        cluster.moor("up", "--detach")
        cluster.apply(
            wanting("present", image, "IfNotPresent"),
            wanting("guessing", image, "IfNotPresent", "wrong"),
            wanting("never", image, "Never"),
            wanting("always", image, "Always"),
            wanting("teammate", image, "Never", "same"),
            wanting("public", BUSYBOX, "Never"),
        )
        cluster.wait_ready("teammate", "public")
        for name in ("present", "guessing", "always"):
            assert "pull access denied" in expect(cluster, name, "ErrImagePull", "ImagePullBackOff")
        assert expect(cluster, "never", "ErrImageNeverPull") == (
            f'Container image "{image}" is not present with pull policy of Never'
        )
        cluster.moor("down")
        cluster.moor("up", "--detach", "--image-verification", "NeverVerify")
        cluster.wait_ready("never")
