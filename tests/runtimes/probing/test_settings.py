"""What each probe states to an engine and to a cluster: every input that its verdict depends on."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from moorage.runtimes.probing.carrier import ProbeContainer
from moorage.runtimes.probing.cri_configuration import (
    ProbePlace,
    container_config,
    probe_owner,
    sandbox_config,
)
from moorage.runtimes.probing.host import HostFacts
from moorage.runtimes.probing.pod_manifest import PodPlace, not_expressible, pod_manifest
from moorage.runtimes.probing.programs import architectures, program_files
from moorage.runtimes.probing.programs.devices import BLOCK_DEVICES, CHARACTER_DEVICE, GPU_DEVICES
from moorage.runtimes.probing.suite import PROBES, SUITE_VERSION
from tests.recording import assert_recorded

_HOST = HostFacts(
    kernel="6.1.0",
    boot_id="host",
    architecture="amd64",
    devices=(BLOCK_DEVICES[1], *GPU_DEVICES, CHARACTER_DEVICE, BLOCK_DEVICES[0]),
)
_PLACE = ProbePlace(
    name="probe-crun-1",
    uid="u1",
    owner="c1.n1",
    log_directory="/logs/probe-crun-1",
    cgroup_parent="/probes/probe-crun-1",
    first_id=65536,
)
_POD_PLACE = PodPlace(
    name="probe-1.n1", namespace="probes", owner="c1.n1", node="n1", class_name="crun.n1"
)


def _sandbox(container: ProbeContainer) -> dict[str, Any]:
    return {
        "sandbox": MessageToDict(sandbox_config(container, _PLACE)),
        "container": MessageToDict(container_config(container, _PLACE)),
    }


def test_what_an_engine_is_asked_for_is_that_of_the_table() -> None:
    assert_recorded(
        "runtimes/probing/sandboxes",
        {name: _sandbox(probe.container(_HOST)) for name, probe in PROBES.items()},
    )


def test_what_a_cluster_is_asked_for_is_that_of_the_table() -> None:
    pods = {}
    for name, probe in PROBES.items():
        container = probe.container(_HOST)
        pods[name] = not_expressible(container) or pod_manifest(container, _POD_PLACE)
    assert_recorded("runtimes/probing/pods", pods)


def test_order_kept_probes_and_deadlines_are_those_of_the_table() -> None:
    """The plain probe decides whether a handler works, so it is the first."""
    values = {name: [probe.is_kept, probe.deadline_s] for name, probe in PROBES.items()}
    assert_recorded("runtimes/probing/suite", values | {"order": list(PROBES)})


def test_a_default_handler_needs_no_class_and_an_image_given_replaces_the_own() -> None:
    container = PROBES["plain"].container(_HOST)
    place = PodPlace(
        name="p", namespace="probes", owner="o", node="n1", class_name="", image="registry/probe:2"
    )
    spec = pod_manifest(container, place)["spec"]
    assert "runtimeClassName" not in spec
    assert spec["containers"][0]["image"] == "registry/probe:2"


@pytest.mark.parametrize("devices", [None, ()])
def test_a_node_without_a_device_gives_a_probe_none(devices: tuple[str, ...] | None) -> None:
    host = HostFacts(kernel="6.1.0", boot_id="host", architecture="amd64", devices=devices)
    assert PROBES["gpu"].container(host).devices == ()


def test_the_owner_of_probes_is_a_node_of_a_cluster() -> None:
    assert probe_owner("c1", "n1") == "c1.n1"


def test_programs_change_with_the_version_of_the_suite_only() -> None:
    """Results are cached by that version: raise SUITE_VERSION with each change of the table."""
    assert_recorded(
        "runtimes/probing/programs",
        {"version": SUITE_VERSION}
        | {
            f"{architecture} {path}": hashlib.sha256(content).hexdigest()[:16]
            for architecture in architectures()
            for path, content in program_files(architecture).items()
        },
    )
