from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.errors import InvalidError
from moorage.engine.oci.process import (
    NO_LABELS,
    app_armor_profile,
    needs_app_armor_profiles,
    parse_app_armor_profiles,
    selinux_labels,
)
from moorage.wire.cri import pb
from tests.engine.oci.requests import HOST

WITH_ARMOR = replace(HOST, has_app_armor=True)
WITH_SELINUX = replace(HOST, has_selinux=True)
LOADED = parse_app_armor_profiles("mine (enforce)\ncri-moorage (enforce)\na b (complain)\n")
Profile = pb.SecurityProfile
DEFAULT = Profile(profile_type=Profile.RuntimeDefault)
UNCONFINED = Profile(profile_type=Profile.Unconfined)
MINE = Profile(profile_type=Profile.Localhost, localhost_ref="mine")
OTHER = Profile(profile_type=Profile.Localhost, localhost_ref="localhost/other")


def context(**fields: Any) -> pb.LinuxContainerSecurityContext:
    return pb.LinuxContainerSecurityContext(**fields)


def test_names_of_loaded_profiles_may_have_blanks() -> None:
    assert {"mine", "cri-moorage", "a b"} == LOADED


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "cri-moorage"),
        ({"apparmor": DEFAULT}, "cri-moorage"),
        ({"apparmor": UNCONFINED}, ""),
        ({"apparmor": MINE}, "mine"),
        ({"apparmor_profile": "runtime/default"}, "cri-moorage"),
        ({"apparmor_profile": "unconfined"}, ""),
        ({"apparmor_profile": "localhost/mine"}, "mine"),
        ({"apparmor_profile": "localhost/other", "apparmor": MINE}, "mine"),
        ({"privileged": True}, ""),
        ({"privileged": True, "apparmor": DEFAULT}, ""),
        ({"privileged": True, "apparmor": MINE}, "mine"),
    ],
)
def test_profiles(fields: dict[str, Any], expected: str) -> None:
    assert app_armor_profile(context(**fields), WITH_ARMOR, LOADED) == expected


@pytest.mark.parametrize(
    ("fields", "host", "loaded", "text"),
    [
        ({"apparmor": OTHER}, WITH_ARMOR, LOADED, "apparmor profile not found: 'other'"),
        ({"apparmor": MINE}, HOST, LOADED, "apparmor is not supported"),
        ({"apparmor": DEFAULT}, HOST, LOADED, "apparmor is not supported"),
        ({"apparmor_profile": "runtime/default"}, HOST, LOADED, "apparmor is not supported"),
        ({"apparmor": DEFAULT}, WITH_ARMOR, {"mine"}, "no default apparmor profile is loaded"),
        ({"apparmor_profile": "mine"}, WITH_ARMOR, LOADED, "'mine' is not supported"),
    ],
)
def test_unavailable_profiles_are_rejected(
    fields: dict[str, Any], host: Any, loaded: Any, text: str
) -> None:
    with pytest.raises(InvalidError, match=text):
        app_armor_profile(context(**fields), host, loaded)


def test_default_profile_is_not_required() -> None:
    assert app_armor_profile(context(), HOST, ()) == ""
    assert app_armor_profile(context(apparmor=UNCONFINED), HOST, ()) == ""
    assert app_armor_profile(context(), WITH_ARMOR, {"mine"}) == ""


def test_the_list_is_read_only_where_it_matters() -> None:
    assert not needs_app_armor_profiles(context(apparmor=MINE), HOST)
    assert not needs_app_armor_profiles(context(privileged=True), WITH_ARMOR)
    assert needs_app_armor_profiles(context(), WITH_ARMOR)


def labels(own: dict[str, str], pods: dict[str, str], host: Any = WITH_SELINUX) -> Any:
    sandbox = pb.LinuxSandboxSecurityContext()
    if pods:
        sandbox.selinux_options.CopyFrom(pb.SELinuxOption(**pods))
    asked = context(selinux_options=pb.SELinuxOption(**own)) if own else context()
    return selinux_labels(asked, sandbox, "sandbox", host)


@pytest.mark.parametrize(
    ("own", "pods", "process", "mount"),
    [
        ({"user": "u", "role": "r", "type": "t", "level": "s0:c1,c2"}, {},
         "u:r:t:s0:c1,c2", "u:object_r:container_file_t:s0:c1,c2"),
        ({}, {"level": "s0:c3,c4", "type": "pod_t"},
         "system_u:system_r:pod_t:s0:c3,c4", "system_u:object_r:container_file_t:s0:c3,c4"),
        ({"type": "t"}, {"level": "s0:c3,c4", "type": "pod_t"},
         "system_u:system_r:t:s0:c3,c4", "system_u:object_r:container_file_t:s0:c3,c4"),
    ],
)  # fmt: skip
def test_labels(own: dict[str, str], pods: dict[str, str], process: str, mount: str) -> None:
    label_map = labels(own, pods)
    assert (label_map.process, label_map.mount) == (process, mount)


def test_a_host_without_selinux_and_the_privileged_have_no_labels() -> None:
    assert labels({"type": "t"}, {}, HOST) == NO_LABELS
    own = context(privileged=True)
    result = selinux_labels(own, pb.LinuxSandboxSecurityContext(), "x", WITH_SELINUX)
    assert result == NO_LABELS


def test_invalid_level_is_rejected() -> None:
    with pytest.raises(InvalidError, match="level 'high' is not a level"):
        labels({"level": "high"}, {})


@given(st.text())
def test_each_sandbox_has_two_categories_of_its_own(sandbox_id: str) -> None:
    empty = pb.LinuxSandboxSecurityContext()
    level = selinux_labels(context(), empty, sandbox_id, WITH_SELINUX).process.split(":", 3)[3]
    low, high = (int(word.removeprefix("c")) for word in level.removeprefix("s0:").split(","))
    assert 0 <= low < high < 1024


def test_the_default_is_the_first_of_the_engines_own_that_is_loaded() -> None:
    names = ("cri-moorage", "cri-containerd.apparmor.d", "crio-default", "docker-default")
    for index, name in enumerate(names):
        loaded = frozenset(names[index:])
        assert app_armor_profile(context(), WITH_ARMOR, loaded) == name
    assert app_armor_profile(context(), WITH_ARMOR, frozenset({"other"})) == ""
