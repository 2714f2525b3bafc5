from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from moorage.engine.handlers.runtimes import KNOWN_RUNTIMES
from moorage.engine.handlers.weakening import WEAKENING
from moorage.engine.oci import HandlerTraits, SandboxRequest
from moorage.engine.oci.writer import container_annotations, sandbox_annotations
from moorage.wire.cri import pb
from tests.engine.oci.requests import HANDLER, SANDBOX_ID, container, pod, request, sandbox


def test_a_container_says_whose_it_is() -> None:
    image = pb.ImageSpec(image="sha256:12", user_specified_image="docker.io/library/web:1")
    assert container_annotations(request(container(image=image))) == {
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.sandbox-id": SANDBOX_ID,
        "io.kubernetes.cri.sandbox-name": "web",
        "io.kubernetes.cri.sandbox-namespace": "shop",
        "io.kubernetes.cri.sandbox-uid": "u-1",
        "io.kubernetes.cri.container-name": "server",
        "io.kubernetes.cri.image-name": "docker.io/library/web:1",
        "io.kubernetes.cri-o.ContainerType": "container",
        "io.kubernetes.cri-o.SandboxID": SANDBOX_ID,
    }


def test_a_sandbox_says_how_large_its_pod_is() -> None:
    config = pod()
    config.log_directory = "/var/log/pods/x"
    config.linux.resources.cpu_shares = 512
    config.linux.resources.memory_limit_in_bytes = 4096
    asked = SandboxRequest(
        sandbox=sandbox(config), argv=("/init",), rootfs=Path("/r"), handler=HANDLER
    )
    result = sandbox_annotations(asked)
    assert result["io.kubernetes.cri.container-type"] == "sandbox"
    assert result["io.kubernetes.cri.sandbox-log-directory"] == "/var/log/pods/x"
    assert result["io.kubernetes.cri.sandbox-cpu-shares"] == "512"
    assert result["io.kubernetes.cri.sandbox-memory"] == "4096"
    assert "io.kubernetes.cri.sandbox-cpu-quota" not in result


@pytest.mark.parametrize(
    ("pods", "containers", "expected"),
    [
        ((), (), set()),
        (("dev.gvisor.*",), (), {"dev.gvisor.spec.x"}),
        (("*",), (), {"dev.gvisor.spec.x", "other/key"}),
        ((), ("own",), {"own"}),
        (("own",), (), set()),
    ],
)
def test_the_handler_says_which_annotations_pass(
    pods: tuple[str, ...], containers: tuple[str, ...], expected: set[str]
) -> None:
    handler = HandlerTraits(annotation_patterns=pods, container_annotation_patterns=containers)
    config = pod()
    config.annotations.update({"dev.gvisor.spec.x": "1", "other/key": "2"})
    asked = request(container(annotations={"own": "3"}), sandbox=sandbox(config), handler=handler)
    result = container_annotations(asked)
    assert {key for key in result if not key.startswith("io.kubernetes.")} == expected


def test_no_pod_passes_itself_off_as_another() -> None:
    config = pod()
    config.annotations["io.kubernetes.cri.sandbox-id"] = "another"
    asked = request(sandbox=sandbox(config), handler=HandlerTraits(annotation_patterns=("*",)))
    assert container_annotations(asked)["io.kubernetes.cri.sandbox-id"] == SANDBOX_ID


@pytest.mark.parametrize("key", WEAKENING)
def test_no_handler_of_ours_passes_on_what_weakens_a_sandbox(key: str) -> None:
    """A pod's author is not its node's administrator: crun takes a seccomp filter from one."""
    for runtime in KNOWN_RUNTIMES:
        assert not any(fnmatchcase(key, glob) for glob in runtime.annotations), runtime.name
