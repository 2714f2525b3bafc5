from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moorage.engine.errors import InvalidError
from moorage.engine.oci import CdiDirectories
from moorage.engine.oci.cdi import (
    NO_EDITS,
    CdiMount,
    ContainerEdits,
    DeviceNode,
    Hook,
    requested_devices,
)
from moorage.engine.oci.writer import apply_edits
from moorage.wire.cri import pb
from tests.engine.oci.requests import container, spec_of

YAML = """
cdiVersion: 0.6.0
kind: vendor.com/net
devices:
  - name: nic0
    containerEdits:
      env: [NIC=0]
"""


def description(*names: str, kind: str = "vendor.com/gpu", env: str = "ALL") -> dict[str, Any]:
    return {
        "cdiVersion": "0.6.0",
        "kind": kind,
        "containerEdits": {"env": [f"{env}=1"]},
        "devices": [
            {
                "name": name,
                "containerEdits": {
                    "env": [f"GPU_{name}={env}"],
                    "deviceNodes": [{"path": f"/dev/{name}", "major": 1, "minor": 2, "type": "c"}],
                    "mounts": [{"hostPath": "/lib/gpu", "containerPath": f"/lib/{name}"}],
                    "additionalGids": [44],
                },
            }
            for name in names
        ],
    }


@pytest.fixture
def directories(tmp_path: Path) -> CdiDirectories:
    cdi = CdiDirectories((tmp_path / "etc", tmp_path / "run"))
    for directory in cdi.directories:
        directory.mkdir()
    return cdi


def put(directory: Path, name: str, content: dict[str, Any] | str) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    (directory / name).write_text(text)


def test_a_files_own_part_comes_once_and_before_its_devices(directories: CdiDirectories) -> None:
    put(directories.directories[0], "gpu.json", description("a", "b"))
    edits = directories.edits(["vendor.com/gpu=a", "vendor.com/gpu=b"])
    assert edits.env == ("ALL=1", "GPU_a=ALL", "GPU_b=ALL")
    assert [device.path for device in edits.device_nodes] == ["/dev/a", "/dev/b"]
    assert edits.mounts[0].container_path == "/lib/a"
    assert edits.additional_gids == (44, 44)


def test_yaml_is_read_too(directories: CdiDirectories) -> None:
    put(directories.directories[1], "net.yaml", YAML)
    assert directories.edits(["vendor.com/net=nic0"]).env == ("NIC=0",)


def test_the_later_directory_wins(directories: CdiDirectories) -> None:
    put(directories.directories[0], "gpu.json", description("a", env="OLD"))
    put(directories.directories[1], "gpu.json", description("a", env="NEW"))
    assert directories.edits(["vendor.com/gpu=a"]).env == ("NEW=1", "GPU_a=NEW")


def test_what_two_files_of_a_directory_describe_is_nobodys(directories: CdiDirectories) -> None:
    for name in ("one.json", "two.json"):
        put(directories.directories[1], name, description("a"))
    with pytest.raises(InvalidError, match=r"unresolvable CDI devices vendor\.com/gpu=a"):
        directories.edits(["vendor.com/gpu=a"])


def test_unknown_devices_are_named_with_the_files_that_are_broken(
    directories: CdiDirectories,
) -> None:
    put(directories.directories[0], "broken.json", "{")
    put(directories.directories[0], "broken.yaml", "a: [")
    put(directories.directories[0], "notes.txt", "not read")
    put(directories.directories[1], "gpu.json", description("a"))
    assert directories.edits(["vendor.com/gpu=a"]).env
    with pytest.raises(InvalidError) as error:
        directories.edits(["vendor.com/gpu=b", "vendor.com/gpu=a", "other.com/x=y"])
    text = str(error.value)
    assert "unresolvable CDI devices vendor.com/gpu=b, other.com/x=y:" in text
    assert "broken.json" in text
    assert "broken.yaml" in text
    assert "notes.txt" not in text


def test_directories_that_are_absent_hold_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="unresolvable"):
        CdiDirectories((tmp_path / "absent",)).edits(["vendor.com/gpu=a"])


@pytest.mark.parametrize("name", ["gpu", "vendor.com/gpu", "vendor.com=a", "/gpu=a", "v/c="])
def test_a_name_must_be_qualified(directories: CdiDirectories, name: str) -> None:
    with pytest.raises(InvalidError, match="not a fully qualified name"):
        directories.edits([name])


def test_devices_are_asked_in_the_field_or_in_annotations() -> None:
    config = container(annotations={"cdi.k8s.io/plugin": "v.com/a=2,v.com/a=1", "other": "v/x=1"})
    config.CDI_devices.add(name="v.com/a=1")
    assert requested_devices(config) == ("v.com/a=1", "v.com/a=2")


def test_edits_reach_the_spec() -> None:
    edits = ContainerEdits(
        env=("PATH=/gpu", "GPU=1"),
        mounts=(CdiMount("/lib/gpu", "/lib/x"), CdiMount("/p", "/proc", ("ro",), "none")),
        hooks=(Hook("createContainer", "/bin/hook", ("hook", "x"), ("A=1",), 5),),
        additional_gids=(44, 0),
        intel_rdt={"closID": "gold"},
    )
    spec = apply_edits(spec_of(), edits)
    assert spec["process"]["env"][-2:] == ["PATH=/gpu", "GPU=1"]
    assert spec["process"]["user"]["additionalGids"] == [0, 44]
    assert spec["mounts"][-2:] == [
        {"destination": "/lib/x", "type": "bind", "source": "/lib/gpu",
         "options": ["ro", "nosuid", "nodev", "bind"]},
        {"destination": "/proc", "type": "none", "source": "/p", "options": ["ro"]},
    ]  # fmt: skip
    assert sum(mount["destination"] == "/proc" for mount in spec["mounts"]) == 1
    hook = {"path": "/bin/hook", "args": ["hook", "x"], "env": ["A=1"], "timeout": 5}
    assert spec["hooks"] == {"createContainer": [hook]}
    assert spec["linux"]["intelRdt"] == {"closID": "gold"}


def test_an_unknown_hook_is_an_error() -> None:
    with pytest.raises(InvalidError, match="has the hook 'whenever'"):
        apply_edits(spec_of(), ContainerEdits(hooks=(Hook("whenever", "/x"),)))


def test_without_edits_the_spec_is_the_same() -> None:
    spec = spec_of()
    assert apply_edits(spec, NO_EDITS) is spec
    assert requested_devices(pb.ContainerConfig()) == ()


def test_a_description_that_others_can_write_is_not_used(directories: CdiDirectories) -> None:
    put(directories.directories[0], "gpu.json", description("gpu0"))
    file = directories.directories[0] / "gpu.json"
    file.chmod(0o666)
    put(directories.directories[0], "net.yaml", YAML)
    with pytest.raises(InvalidError, match=f"{file} is not used: .*chmod go-w"):
        directories.edits(["vendor.com/gpu=gpu0"])
    # The files after it are.
    assert directories.edits(["vendor.com/net=nic0"]).env == ("NIC=0",)


@pytest.mark.parametrize(
    "name",
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"],
)
def test_each_hook_of_a_runtime_can_be_a_devices(name: str) -> None:
    """Source: OCI runtime-spec, "POSIX-platform Hooks"."""
    hooks = (Hook(name, "/a"), Hook(name, "/b", timeout=0))
    assert apply_edits(spec_of(), ContainerEdits(hooks=hooks))["hooks"] == {
        name: [{"path": "/a"}, {"path": "/b", "timeout": 0}]
    }


def test_vendors_tools_and_programs_write_to_the_standard_directories() -> None:
    """Source: CDI, "CDI JSON Specification": /etc/cdi for static files, /var/run/cdi for others."""
    assert list(CdiDirectories().directories) == [Path("/etc/cdi"), Path("/var/run/cdi")]


def everything(name: str) -> tuple[dict[str, Any], ContainerEdits]:
    """Return edits in which no field has its default, as in a file and as read."""
    document = {
        "env": [f"{name}=1"],
        "deviceNodes": [
            {
                "path": f"/dev/{name}", "hostPath": f"/dev/host-{name}", "type": "c", "major": 1,
                "minor": 2, "fileMode": 0o600, "permissions": "rw", "uid": 3, "gid": 4,
            }
        ],
        "mounts": [
            {"hostPath": "/h", "containerPath": f"/{name}", "options": ["ro"], "type": "none"}
        ],
        "hooks": [
            {"hookName": "prestart", "path": f"/{name}", "args": ["a"], "env": ["B=1"],
             "timeout": 5}
        ],
        "additionalGids": [len(name)],
        "intelRdt": {"closID": name},
    }  # fmt: skip
    edits = ContainerEdits(
        env=(f"{name}=1",),
        device_nodes=(
            DeviceNode(f"/dev/{name}", f"/dev/host-{name}", "c", 1, 2, 0o600, "rw", 3, 4),
        ),
        mounts=(CdiMount("/h", f"/{name}", ("ro",), "none"),),
        hooks=(Hook("prestart", f"/{name}", ("a",), ("B=1",), 5),),
        additional_gids=(len(name),),
        intel_rdt={"closID": name},
    )
    return document, edits


@pytest.mark.parametrize("suffix", ["json", "yaml", "yml"])
def test_every_field_of_a_file_is_read_and_merged(directories: CdiDirectories, suffix: str) -> None:
    own, own_edits = everything("own")
    of_device, device_edits = everything("device")
    content = {
        "cdiVersion": "0.6.0",
        "kind": "v.com/x",
        "containerEdits": own,
        "devices": [{"name": "a", "containerEdits": of_device}, {"name": "bare"}],
    }
    # JSON is YAML too.
    put(directories.directories[0], f"x.{suffix}", content)
    assert directories.edits(["v.com/x=bare"]) == own_edits
    assert directories.edits(["v.com/x=a"]) == ContainerEdits(
        env=own_edits.env + device_edits.env,
        device_nodes=own_edits.device_nodes + device_edits.device_nodes,
        mounts=own_edits.mounts + device_edits.mounts,
        hooks=own_edits.hooks + device_edits.hooks,
        additional_gids=own_edits.additional_gids + device_edits.additional_gids,
        intel_rdt=device_edits.intel_rdt,
    )
    assert own_edits + NO_EDITS == NO_EDITS + own_edits == own_edits


@pytest.mark.parametrize("name", ["v/c=1", "v.com/c-d_e=0:1.a_b-c", "V1/C=D", "a.b-c_d/e=f"])
def test_names_that_are_qualified_are_looked_up(directories: CdiDirectories, name: str) -> None:
    with pytest.raises(InvalidError, match="unresolvable CDI devices"):
        directories.edits([name])


@pytest.mark.parametrize("name", ["v./c=1", "v/c.d=1", "v/c_=1", "v/c=1:", "v/c=1 ", "=", "v/c=é"])
def test_names_that_begin_or_end_in_punctuation_are_refused(
    directories: CdiDirectories, name: str
) -> None:
    with pytest.raises(InvalidError, match="not a fully qualified name"):
        directories.edits([name])
