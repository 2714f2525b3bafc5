from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.api.containers import VolumeMount
from moorage.node.config.errors import ConfigError
from moorage.node.paths import PodPaths
from moorage.node.volumes.container_mounts import container_mounts, is_recursive
from moorage.node.volumes.kinds import CONFIG_MAP, EMPTY_DIR, IMAGE, MountedVolume
from moorage.wire.cri import pb
from tests.node.objects import Wire, a_container
from tests.node.volumes.mounts import FakeMounter


class Case:
    """A volume of each sort on a temporary disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mounter = FakeMounter()
        for name in ("data", "settings"):
            (root / name).mkdir()
        self.volumes = {
            "data": MountedVolume("data", EMPTY_DIR, root / "data"),
            "settings": MountedVolume("settings", CONFIG_MAP, root / "settings", is_read_only=True),
            "model": MountedVolume("model", IMAGE, None, is_read_only=True),
        }

    def mounts(self, *wanted: Wire, recursive: bool = True, **fields: Any) -> list[pb.Mount]:
        return container_mounts(
            a_container(volumeMounts=list(wanted), **fields),
            self.volumes,
            {"model": pb.ImageSpec(image="sha256:m")},
            {"NAME": "web", "EMPTY": ""},
            PodPaths(self.root / "pod"),
            self.mounter,
            has_recursive_read_only=recursive,
        )


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def mount(name: str = "data", **fields: Any) -> Wire:
    return {"name": name, "mountPath": "/m", **fields}


def test_in_order_and_absolute(case: Case) -> None:
    mounts = case.mounts(mount(mountPath="rel"), mount("settings"))
    assert [(mount.container_path, mount.host_path) for mount in mounts] == [
        ("/rel", str(case.root / "data")),
        ("/m", str(case.root / "settings")),
    ]


@pytest.mark.parametrize(
    ("wanted", "is_read_only"),
    [(mount(), False), (mount(readOnly=True), True), (mount("settings"), True)],
)
def test_read_only_where_asked_for_or_in_its_nature(
    case: Case, wanted: Wire, is_read_only: bool
) -> None:
    assert case.mounts(wanted)[0].readonly is is_read_only


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        (None, pb.PROPAGATION_PRIVATE),
        ("None", pb.PROPAGATION_PRIVATE),
        ("HostToContainer", pb.PROPAGATION_HOST_TO_CONTAINER),
        ("Bidirectional", pb.PROPAGATION_BIDIRECTIONAL),
    ],
)
def test_propagation(case: Case, mode: str | None, wanted: int) -> None:
    assert case.mounts(mount(mountPropagation=mode))[0].propagation == wanted


def test_an_image_is_mounted_by_the_engine(case: Case) -> None:
    (mount_point,) = case.mounts(mount("model", subPath="weights"))
    assert (mount_point.image.image, mount_point.image_sub_path) == ("sha256:m", "weights")
    assert (mount_point.host_path, mount_point.readonly) == ("", True)


def test_a_part_of_a_volume_is_bound_to_a_place_of_its_own(case: Case) -> None:
    mounts = case.mounts(mount(subPath="a"), mount(mountPath="/n", subPathExpr="$(NAME)/logs"))
    places = [case.root / f"pod/volume-subpaths/data/app/{index}" for index in (0, 1)]
    assert [mount.host_path for mount in mounts] == [str(place) for place in places]
    assert case.mounter.binds == {
        places[0]: case.root / "data/a",
        places[1]: case.root / "data/web/logs",
    }


def test_an_expression_that_expands_to_nothing_is_the_whole_volume(case: Case) -> None:
    assert case.mounts(mount(subPathExpr="$(EMPTY)"))[0].host_path == str(case.root / "data")


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        (mount("gone"), 'cannot find volume "gone" to mount into container "app"'),
        (mount(mountPropagation="Odd"), 'invalid MountPropagation mode: "Odd"'),
        (mount(subPath="../x"), r"must not contain '\.\.'"),
        (mount(subPathExpr="$(GONE)/x"), r"missing value for 'GONE' in subPathExpr"),
        (mount(subPathExpr="$(NAME)/../.."), r"must not contain '\.\.'"),
    ],
)
def test_invalid_mounts_are_rejected(case: Case, wanted: Wire, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        case.mounts(wanted)


def test_failed_subpath_is_named(case: Case) -> None:
    (case.root / "data/file").write_text("")
    with pytest.raises(ConfigError) as caught:
        case.mounts(mount(subPath="file/below"))
    assert str(caught.value) == (
        'failed to prepare subPath for volumeMount "data" of container "app": Not a directory'
    )


def test_raw_devices_are_refused(case: Case) -> None:
    with pytest.raises(ConfigError, match="raw block volumes are not supported"):
        case.mounts(volumeDevices=[{"name": "d", "devicePath": "/dev/x"}])


REFUSED = 'failed to resolve recursive read-only mode: volume "data" requested recursive'


@pytest.mark.parametrize(
    ("fields", "is_supported", "wanted"),
    [
        ({}, True, False),
        ({"readOnly": True}, True, False),
        ({"readOnly": True, "recursiveReadOnly": "Disabled"}, True, False),
        ({"readOnly": True, "recursiveReadOnly": "Enabled"}, True, True),
        ({"readOnly": True, "recursiveReadOnly": "IfPossible"}, True, True),
        ({"readOnly": True, "recursiveReadOnly": "IfPossible"}, False, False),
        (
            {"readOnly": True, "recursiveReadOnly": "Enabled"},
            False,
            "read-only mode, but it is not supported by the runtime",
        ),
        ({"recursiveReadOnly": "Enabled"}, True, "read-only mode, but it is not read-only"),
        (
            {
                "readOnly": True,
                "recursiveReadOnly": "Enabled",
                "mountPropagation": "HostToContainer",
            },
            True,
            'read-only mode, but it is not compatible with propagation "HostToContainer"',
        ),
    ],
)
def test_recursive_read_only(fields: Wire, is_supported: bool, wanted: bool | str) -> None:
    obj = msgspec.convert(mount(**fields), VolumeMount)
    if isinstance(wanted, bool):
        assert is_recursive(obj, is_supported) is wanted
        return
    with pytest.raises(ConfigError) as caught:
        is_recursive(obj, is_supported)
    assert str(caught.value) == f"{REFUSED} {wanted}"


@pytest.mark.parametrize(
    ("mode", "is_supported", "expected"),
    [
        (None, True, False),
        ("Disabled", True, False),
        ("Enabled", True, True),
        ("IfPossible", True, True),
        ("IfPossible", False, False),
    ],
)
def test_the_engine_is_asked_to_make_all_below_a_mount_read_only(
    case: Case, mode: str | None, is_supported: bool, expected: bool
) -> None:
    fields = {} if mode is None else {"recursiveReadOnly": mode}
    plain, mount_point = case.mounts(
        mount(mountPath="/other"), mount(readOnly=True, **fields), recursive=is_supported
    )
    assert (mount_point.readonly, mount_point.recursive_read_only) == (True, expected)
    assert (plain.readonly, plain.recursive_read_only) == (False, False)


def test_what_the_runtime_cannot_make_read_only_is_refused(case: Case) -> None:
    with pytest.raises(ConfigError, match="it is not supported by the runtime"):
        case.mounts(mount(readOnly=True, recursiveReadOnly="Enabled"), recursive=False)
