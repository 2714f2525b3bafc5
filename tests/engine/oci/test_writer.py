from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.errors import InvalidError
from moorage.engine.handlers.definition import CgroupDriver
from moorage.engine.oci import Document, Findings, HandlerTraits, Rlimit, SandboxRequest, SpecWriter
from moorage.engine.oci.devices import HostDevice
from moorage.linux.capabilities import NAMES
from moorage.wire.cri import pb
from tests.engine.oci.requests import (
    ABLE,
    HANDLER,
    HOST,
    SANDBOX_ID,
    as_found,
    container,
    pod,
    sandbox,
    spec_of,
)
from tests.engine.oci.test_namespaces import USERNS

Profile = pb.SecurityProfile
DEFAULT = Profile(profile_type=Profile.RuntimeDefault)
PRIVILEGED: dict[str, Any] = {"sandbox": sandbox(pod(privileged=True))}
NODE = HostDevice(path="/dev/x", kind="c", major=10, minor=3, mode=0o600, uid=0, gid=0)
SELINUX = replace(HOST, has_selinux=True)


def sandbox_spec(
    config: pb.PodSandboxConfig | None = None,
    handler: HandlerTraits = HANDLER,
    host: Any = HOST,
    findings: Findings = Findings(),  # noqa: B008
    **changed: Any,
) -> Document:
    asked = SandboxRequest(
        sandbox=sandbox(config, **changed),
        argv=("/init", "--hold"),
        rootfs=Path("/holder"),
        handler=handler,
        env={"A": "1"},
    )
    return SpecWriter(host).sandbox(asked, findings)


def test_a_container_that_asks_for_nothing() -> None:
    spec = spec_of()
    process = spec["process"]
    assert spec["ociVersion"] == "1.0.2"
    assert spec["root"] == {"path": "/rootfs", "readonly": False}
    assert process["args"] == ["/bin/server"]
    assert process["user"] == {"uid": 0, "gid": 0, "additionalGids": [0]}
    assert process["noNewPrivileges"] is False
    assert process["terminal"] is False
    assert "hostname" not in spec
    assert not {"apparmorProfile", "selinuxLabel", "rlimits"} & process.keys()
    assert not {"seccomp", "mountLabel", "rootfsPropagation", "uidMappings"} & spec["linux"].keys()


def test_what_is_asked_is_written() -> None:
    spec = spec_of(
        container(
            tty=True,
            security={
                "readonly_rootfs": True,
                "no_new_privs": True,
                "masked_paths": ["/proc/kcore"],
                "readonly_paths": ["/proc/sys"],
                "seccomp": DEFAULT,
            },
            resources={"cpu_shares": 5, "oom_score_adj": 7},
        ),
        rlimits=(Rlimit(name="RLIMIT_CORE", soft=0, hard=1),),
    )
    assert spec["process"]["terminal"] is True
    assert spec["process"]["noNewPrivileges"] is True
    assert spec["process"]["oomScoreAdj"] == 7
    assert spec["process"]["rlimits"] == [{"type": "RLIMIT_CORE", "soft": 0, "hard": 1}]
    assert spec["root"]["readonly"] is True
    assert spec["linux"]["maskedPaths"] == ["/proc/kcore"]
    assert spec["linux"]["readonlyPaths"] == ["/proc/sys"]
    assert spec["linux"]["seccomp"]["defaultAction"] == "SCMP_ACT_ERRNO"
    assert spec["linux"]["resources"]["cpu"] == {"shares": 5}


def test_the_privileged_are_held_by_nothing() -> None:
    config = container(
        security={
            "privileged": True,
            "seccomp": DEFAULT,
            "masked_paths": ["/proc/kcore"],
            "readonly_paths": ["/proc/sys"],
        }
    )
    spec = spec_of(config, findings=Findings(devices=(NODE,)), host=SELINUX, **PRIVILEGED)
    linux = spec["linux"]
    assert not {"seccomp", "maskedPaths", "readonlyPaths", "mountLabel"} & linux.keys()
    assert linux["resources"]["devices"] == [{"allow": True, "access": "rwm"}]
    assert [device["path"] for device in linux["devices"]] == ["/dev/x"]
    assert spec["process"]["capabilities"]["effective"] == list(NAMES)


def test_a_handler_may_keep_the_devices_from_the_privileged() -> None:
    kept = replace(HANDLER, has_host_devices_when_privileged=False)
    spec = spec_of(container(security={"privileged": True}), handler=kept, **PRIVILEGED)
    assert spec["linux"]["resources"]["devices"][0]["allow"] is False


def test_a_profile_that_was_not_looked_up_is_never_left_out() -> None:
    asked = Profile(profile_type=Profile.Localhost, localhost_ref="/p.json")
    config = container(security={"seccomp": asked})
    with pytest.raises(ValueError, match="has not been looked up"):
        spec_of(config)
    spec = spec_of(config, findings=Findings(seccomp={"defaultAction": "SCMP_ACT_LOG"}))
    assert spec["linux"]["seccomp"] == {"defaultAction": "SCMP_ACT_LOG"}


def test_labels_are_for_the_process_and_its_files() -> None:
    spec = spec_of(host=SELINUX)
    held = sandbox_spec(host=SELINUX)
    assert spec["process"]["selinuxLabel"].startswith("system_u:system_r:container_t:s0:c")
    assert spec["linux"]["mountLabel"] == held["linux"]["mountLabel"]


def test_an_armour_profile_is_the_processes() -> None:
    spec = spec_of(
        container(),
        host=replace(HOST, has_app_armor=True),
        findings=Findings(app_armor=frozenset({"cri-moorage"})),
    )
    assert spec["process"]["apparmorProfile"] == "cri-moorage"


def test_the_cgroup_is_below_the_pods() -> None:
    assert spec_of()["linux"]["cgroupsPath"].startswith("/kubepods/podu-1/c0c0")
    by_systemd = replace(HANDLER, cgroup_driver=CgroupDriver.SYSTEMD)
    with pytest.raises(InvalidError, match="not a systemd slice"):
        spec_of(handler=by_systemd)


def test_a_user_namespace_is_joined_and_described() -> None:
    options = pb.NamespaceOption(pid=pb.CONTAINER, userns_options=USERNS)
    spec = spec_of(
        container(security={"namespace_options": options}),
        sandbox=sandbox(pod(namespace_options=options), userns="/run/pins/user"),
        handler=ABLE,
    )
    assert {"type": "user", "path": "/run/pins/user"} in spec["linux"]["namespaces"]
    assert spec["linux"]["uidMappings"] == [{"containerID": 0, "hostID": 65536, "size": 65536}]
    assert spec["linux"]["gidMappings"][0]["hostID"] == 131072


def test_a_mount_that_travels_lets_the_root_travel() -> None:
    travelling = pb.Mount(
        container_path="/m", host_path="/m", propagation=pb.PROPAGATION_HOST_TO_CONTAINER
    )
    config = container(mounts=[travelling])
    with pytest.raises(InvalidError, match="not a shared or slave mount"):
        spec_of(config)


def test_a_holder_can_do_nothing_and_waits() -> None:
    spec = sandbox_spec(pod(seccomp=DEFAULT))
    process, linux = spec["process"], spec["linux"]
    assert spec["hostname"] == "web"
    assert spec["root"] == {"path": "/holder", "readonly": True}
    assert process["args"] == ["/init", "--hold"]
    assert process["env"][-1] == "A=1"
    assert process["noNewPrivileges"] is True
    assert process["oomScoreAdj"] == -998
    assert not any(process["capabilities"].values())
    assert linux["resources"]["cpu"] == {"shares": 2}
    assert linux["sysctl"]["net.ipv4.ip_unprivileged_port_start"] == "0"
    assert linux["cgroupsPath"] == f"/kubepods/podu-1/{SANDBOX_ID}"
    assert "seccomp" in linux


def test_a_virtualised_sandbox_is_where_the_pod_computes() -> None:
    kata = HandlerTraits(name="kata", is_virtualised=True)
    assert "cpu" not in sandbox_spec(handler=kata)["linux"]["resources"]


def test_a_score_below_the_engines_own_is_not_tried() -> None:
    assert sandbox_spec(host=replace(HOST, oom_score_floor=0))["process"]["oomScoreAdj"] == 0


def test_a_pod_on_the_hosts_network_has_the_hosts_name() -> None:
    options = pb.NamespaceOption(network=pb.NODE)
    spec = sandbox_spec(pod(namespace_options=options))
    assert "hostname" not in spec
    assert {namespace["type"] for namespace in spec["linux"]["namespaces"]} == {
        "mount",
        "ipc",
        "pid",
    }
    assert spec["linux"]["sysctl"] == {}


def test_the_holder_is_the_user_the_pod_names() -> None:
    asked = {"run_as_user": pb.Int64Value(value=5), "run_as_group": pb.Int64Value(value=6)}
    spec = sandbox_spec(pod(**asked, supplemental_groups=[7, 6]))
    assert spec["process"]["user"] == {"uid": 5, "gid": 6, "additionalGids": [6, 7]}
    with pytest.raises(InvalidError, match="run_as_group of the sandbox"):
        sandbox_spec(pod(run_as_group=pb.Int64Value(value=6)))
    with pytest.raises(InvalidError, match="-1 of the sandbox is out of range"):
        sandbox_spec(pod(run_as_user=pb.Int64Value(value=-1)))


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
short_paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(
    lambda parts: "/" + "/".join(parts)
)


@given(
    args=st.lists(words, max_size=4),
    envs=st.dictionaries(st.text("ABC", min_size=1), words, max_size=4),
    paths=st.lists(short_paths, max_size=4),
    privileged=st.booleans(),
    shares=st.integers(0, 2**18),
    annotations=st.dictionaries(words, words, max_size=3),
)
def test_whatever_is_asked_the_spec_is_json_and_the_same_again(
    args: list[str],
    envs: dict[str, str],
    paths: list[str],
    privileged: bool,
    shares: int,
    annotations: dict[str, str],
) -> None:
    config = container(
        args=args,
        envs=[pb.KeyValue(key=key, value=value.encode()) for key, value in envs.items()],
        mounts=[pb.Mount(container_path=path, host_path=path) for path in paths],
        annotations=annotations,
        security={"privileged": privileged, "seccomp": DEFAULT},
        resources={"cpu_shares": shares},
    )
    handler = replace(HANDLER, container_annotation_patterns=("*",))
    first = spec_of(config, handler=handler, findings=as_found(config), **PRIVILEGED)
    text = msgspec.json.encode(first)
    assert msgspec.json.decode(text) == first
    again = spec_of(config, handler=handler, findings=as_found(config), **PRIVILEGED)
    assert msgspec.json.encode(again) == text
    assert set(first["process"]["capabilities"]["bounding"]) <= set(NAMES)
