"""The image of all parts, where `make image` built it: loaded into our engine, and run."""

from __future__ import annotations

from functools import partial

import pytest

from moorage import __version__
from tests.built_image import built_image
from tests.running import RunningCluster, pod, until

pytestmark = pytest.mark.runtime

NAME = f"moorage.local/moorage:{__version__}"
COMMANDS = {"--version": f"moor, version {__version__}", "webhook --help": "Usage: moor webhook"}


def test_the_parts_start_from_the_image_as_an_ordinary_user(whole_cluster: RunningCluster) -> None:
    whole_cluster.moor("image", "load", str(built_image()))
    security = {
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    names = {arguments: f"image-{number}" for number, arguments in enumerate(COMMANDS)}
    for arguments, name in names.items():
        container = {
            "name": "c",
            "image": NAME,
            "imagePullPolicy": "Never",
            "args": arguments.split(),
            "securityContext": security,
        }
        whole_cluster.apply(pod(name, restartPolicy="Never", containers=[container]))
    for arguments, name in names.items():
        until(partial(_has_succeeded, whole_cluster, name), f"moor {arguments}")
        assert whole_cluster.kubectl("logs", name).stdout.startswith(COMMANDS[arguments])
        whole_cluster.kubectl("delete", "pod", name, "--wait=false")


def _has_succeeded(cluster: RunningCluster, name: str) -> bool:
    return bool(cluster.get("pods", name)["status"]["phase"] == "Succeeded")
