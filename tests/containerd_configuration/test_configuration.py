"""The configuration of a private containerd, for each generation of it."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moorage.linux.program import Version
from tests.containerd_configuration import (
    NATIVE,
    Configuration,
    RuntimeTable,
    configuration_version,
    write_configuration,
)

OLD = Version((1, 6, 20), "1.6.20")
NEW = Version((2, 1, 0), "2.1.0")
RUNC = RuntimeTable(handler="runc", program=Path("/usr/sbin/runc"), root=Path("/run/x/runc"))
GVISOR = RuntimeTable(handler="gvisor", shim_type="io.containerd.runsc.v1")
KATA = RuntimeTable(
    handler="kata-qemu",
    shim_type="io.containerd.kata.v2",
    configuration=Path("/opt/kata/qemu.toml"),
)
CONFIGURATION = Configuration(
    root=Path("/data/root"),
    state=Path("/run/x/state"),
    socket=Path("/run/x/c.sock"),
    runtimes=(RUNC, GVISOR, KATA),
    default_handler="runc",
    sandbox_image="local/pause:1",
    cni_programs=Path("/usr/lib/cni"),
    cni_configurations=Path("/data/cni"),
)


def written(version: Version, **changes: Any) -> dict[str, Any]:
    return tomllib.loads(write_configuration(replace(CONFIGURATION, **changes), version))


@pytest.mark.parametrize(
    ("version", "format_version"), [((1, 5, 0), 2), ((1, 6, 20), 2), ((1, 7, 27), 2), ((2, 0), 3)]
)
def test_the_format_follows_the_release(version: tuple[int, ...], format_version: int) -> None:
    assert configuration_version(Version(version, "")) == format_version


def test_a_release_that_lacks_the_keys_is_refused() -> None:
    with pytest.raises(ValueError, match=r"containerd 1\.4\.13 is too old"):
        configuration_version(Version((1, 4, 13), "1.4.13"))


@pytest.mark.parametrize("version", [OLD, NEW])
def test_paths_are_the_configured_ones(version: Version) -> None:
    document = written(version)
    assert (document["root"], document["state"]) == ("/data/root", "/run/x/state")
    assert document["grpc"]["address"] == "/run/x/c.sock"


RUNTIMES = {
    OLD: ("io.containerd.grpc.v1.cri", "containerd"),
    NEW: ("io.containerd.cri.v1.runtime", "containerd"),
}


@pytest.mark.parametrize("version", [OLD, NEW])
def test_each_handler_has_its_table(version: Version) -> None:
    plugin, section = RUNTIMES[version]
    containerd = written(version)["plugins"][plugin][section]
    assert containerd["default_runtime_name"] == "runc"
    assert containerd["runtimes"] == {
        "runc": {
            "runtime_type": "io.containerd.runc.v2",
            "options": {
                "SystemdCgroup": False,
                "BinaryName": "/usr/sbin/runc",
                "Root": "/run/x/runc",
            },
        },
        "gvisor": {
            "runtime_type": "io.containerd.runsc.v1",
            "privileged_without_host_devices": True,
        },
        "kata-qemu": {
            "runtime_type": "io.containerd.kata.v2",
            "privileged_without_host_devices": True,
            "options": {
                "ConfigPath": "/opt/kata/qemu.toml",
                "TypeUrl": "io.containerd.kata.v2.options",
            },
        },
    }


def test_version_2_keeps_everything_in_the_cri_plugin() -> None:
    cri = written(OLD, registry_hosts=Path("/data/hosts"), stream_port=4711)["plugins"][
        "io.containerd.grpc.v1.cri"
    ]
    assert cri["sandbox_image"] == "local/pause:1"
    assert cri["containerd"]["snapshotter"] == "overlayfs"
    assert cri["registry"]["config_path"] == "/data/hosts"
    assert cri["stream_server_port"] == "4711"
    assert cri["cni"] == {"bin_dir": "/usr/lib/cni", "conf_dir": "/data/cni"}


def test_version_3_splits_runtime_and_images() -> None:
    plugins = written(NEW, registry_hosts=Path("/data/hosts"))["plugins"]
    images = plugins["io.containerd.cri.v1.images"]
    assert images["pinned_images"]["sandbox"] == "local/pause:1"
    assert images["registry"]["config_path"] == "/data/hosts"
    assert plugins["io.containerd.cri.v1.runtime"]["cni"]["use_internal_loopback"] is True


@pytest.mark.parametrize(("is_restricted", "version"), [(True, OLD), (False, OLD), (True, NEW)])
def test_the_oom_score_is_restricted_where_it_cannot_be_lowered(
    is_restricted: bool, version: Version
) -> None:
    plugin = RUNTIMES[version][0]
    cri = written(version, restricts_oom_score=is_restricted)["plugins"][plugin]
    assert cri["restrict_oom_score_adj"] is is_restricted


def test_the_snapshotter_that_is_used_is_not_disabled() -> None:
    assert "io.containerd.snapshotter.v1.native" in written(OLD)["disabled_plugins"]
    disabled = written(OLD, snapshotter=NATIVE)["disabled_plugins"]
    assert "io.containerd.snapshotter.v1.native" not in disabled
    assert "io.containerd.snapshotter.v1.overlayfs" in disabled


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"default_handler": "crun"}, "'crun' is none of the handlers runc, gvisor, kata-qemu"),
        ({"snapshotter": "zfs"}, "'zfs' is not one of overlayfs, native"),
    ],
)
def test_what_containerd_would_refuse_is_refused_before(
    changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        written(OLD, **changes)
