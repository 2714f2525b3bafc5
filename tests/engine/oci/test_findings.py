from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from moorage.engine.errors import InvalidError
from moorage.engine.oci import (
    CdiDirectories,
    Findings,
    HandlerTraits,
    look_up_container,
    look_up_sandbox,
)
from moorage.engine.oci.cdi import NO_EDITS
from moorage.wire.cri import pb
from tests.engine.oci.requests import HANDLER, HOST, container, pod

Profile = pb.SecurityProfile


def look_up(*mounts: pb.Mount, handler: HandlerTraits = HANDLER, **fields: Any) -> Findings:
    config = container(mounts=list(mounts), **fields)
    return look_up_container(config, handler, HOST, CdiDirectories(()))


def mount(host: Path | str, **fields: Any) -> pb.Mount:
    return pb.Mount(container_path="/m", host_path=str(host), **fields)


def test_a_source_is_where_its_links_lead(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    result = look_up(mount(tmp_path / "link"))
    assert result.sources == {str(tmp_path / "link"): str(tmp_path / "real")}


def test_a_source_that_is_absent_is_made_a_directory(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("a/b")
    result = look_up(mount(tmp_path / "dangling"), mount(tmp_path / "c/d"))
    assert (tmp_path / "a/b").is_dir()
    assert (tmp_path / "c/d").is_dir()
    assert result.sources[str(tmp_path / "dangling")] == str(tmp_path / "a/b")


def test_where_no_directory_can_be_made_the_error_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidError, match=r"mount /m: host_path .* cannot be created"):
        look_up(mount(tmp_path / "file/below"))


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (mount("data"), "host_path 'data' must be an absolute path"),
        (mount(""), "host_path '' must be an absolute path"),
        (mount("", image=pb.ImageSpec(image="img")), "of image 'img' must be an absolute path"),
    ],
)
def test_a_source_must_be_a_whole_path(asked: pb.Mount, text: str) -> None:
    with pytest.raises(InvalidError, match=text):
        look_up(asked)


def test_the_machines_mounts_are_read_only_when_one_travels(tmp_path: Path) -> None:
    assert look_up(mount(tmp_path)).peers == ()
    assert look_up(mount(tmp_path, propagation=pb.PROPAGATION_HOST_TO_CONTAINER)).peers


def test_the_handlers_own_profile_is_read(tmp_path: Path) -> None:
    place = tmp_path / "p.json"
    place.write_text('{"defaultAction": "SCMP_ACT_LOG"}')
    handler = replace(HANDLER, default_seccomp=str(place))
    asked = Profile(profile_type=Profile.RuntimeDefault)
    assert look_up(handler=handler, security={"seccomp": asked}).seccomp is not None
    assert look_up(handler=handler).seccomp is None
    result = look_up_sandbox(pod(seccomp=asked), handler, HOST)
    assert result.seccomp == {"defaultAction": "SCMP_ACT_LOG"}


def test_the_privileged_get_all_devices_unless_the_handler_keeps_them() -> None:
    security = {"privileged": True}
    assert look_up(security=security).devices
    kept = replace(HANDLER, has_host_devices_when_privileged=False)
    assert look_up(security=security, handler=kept).devices == ()


def test_described_devices_are_among_the_devices(tmp_path: Path) -> None:
    (tmp_path / "v.yaml").write_text(
        "cdiVersion: 0.6.0\nkind: v.com/x\ndevices:\n- name: a\n  containerEdits:\n"
        "    deviceNodes:\n    - {path: /dev/a, type: c, major: 7, minor: 8}\n"
    )
    config = container()
    config.CDI_devices.add(name="v.com/x=a")
    result = look_up_container(config, HANDLER, HOST, CdiDirectories((tmp_path,)))
    assert [(device.path, device.major) for device in result.devices] == [("/dev/a", 7)]


def test_a_hook_that_others_can_write_is_not_run() -> None:
    distrusted = {"/bin/bad": "group may write it"}

    def look_up(config: pb.ContainerConfig, cdi: Any) -> Any:
        return look_up_container(
            config, HANDLER, HOST, cdi, distrust=lambda path: distrusted.get(str(path))
        )

    for hook in ("/bin/good", "/bin/bad"):
        hooks = (SimpleNamespace(path=hook),)
        edits = msgspec.structs.replace(NO_EDITS, hooks=hooks)
        cdi: Any = SimpleNamespace(edits=lambda _, edits=edits: edits)
        config = container(CDI_devices=[pb.CDIDevice(name="v.example/c=d")])
        if hook == "/bin/good":
            assert look_up(config, cdi).edits is edits
        else:
            with pytest.raises(InvalidError, match=f"CDI hook {hook}: group may write it"):
                look_up(config, cdi)


def test_unreadable_profiles_are_an_error(tmp_path: Path) -> None:
    file = tmp_path / "profiles"
    host = replace(HOST, has_app_armor=True)
    config = container()
    profile = Profile(profile_type=Profile.Localhost, localhost_ref="mine")
    config.linux.security_context.apparmor.CopyFrom(profile)
    with pytest.raises(InvalidError, match="cannot be read: No such file or directory; mount"):
        look_up_container(config, HANDLER, host, CdiDirectories(()), profiles=file)
    file.write_text("mine (enforce)\nother (complain)\n")
    result = look_up_container(config, HANDLER, host, CdiDirectories(()), profiles=file)
    assert result.app_armor == {"mine", "other"}
    assert look_up_container(config, HANDLER, HOST, CdiDirectories(())).app_armor == frozenset()
