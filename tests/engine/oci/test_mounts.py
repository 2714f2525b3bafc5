from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.errors import InvalidError
from moorage.engine.oci import Document, SandboxFiles, SandboxRequest
from moorage.engine.oci.mounts import container_mounts, sandbox_mounts
from moorage.engine.oci.propagation import parse_peers
from moorage.wire.cri import pb
from tests.engine.oci.requests import (
    ABLE,
    HANDLER,
    HOST,
    as_found,
    container,
    pod,
    request,
    sandbox,
)
from tests.engine.oci.test_namespaces import USERNS

FILES = SandboxFiles(
    hostname=Path("/pod/hostname"),
    hosts=Path("/pod/hosts"),
    resolv_conf=Path("/pod/resolv.conf"),
    shm=Path("/pod/shm"),
)
KERNEL = ["/proc", "/dev", "/dev/pts", "/dev/mqueue", "/sys", "/sys/fs/cgroup"]
PODS = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/dev/shm"]


def mount(path: str, source: str = "/data", **fields: Any) -> pb.Mount:
    return pb.Mount(container_path=path, host_path=source, **fields)


def mounts(
    *asked: pb.Mount,
    security: dict[str, Any] | None = None,
    pods: pb.PodSandboxConfig | None = None,
    handler: Any = HANDLER,
    host: Any = HOST,
    mountinfo: str = "",
    tty: bool = False,
) -> list[Document]:
    config = container(mounts=list(asked), security=security or {}, tty=tty)
    context = sandbox(pods, files=FILES)
    findings = as_found(config, peers=parse_peers(mountinfo))
    return container_mounts(request(config, sandbox=context, handler=handler), host, findings)


def at(mount_list: list[Document], destination: str) -> Document:
    (only,) = (mount for mount in mount_list if mount["destination"] == destination)
    return only


def destinations(mount_list: list[Document]) -> list[str]:
    return [mount["destination"] for mount in mount_list]


def test_a_container_sees_the_kernel_and_its_pod() -> None:
    mount_list = mounts()
    assert destinations(mount_list) == KERNEL + PODS
    assert at(mount_list, "/dev/shm")["source"] == "/pod/shm"
    assert at(mount_list, "/etc/hosts")["options"] == ["rbind", "rprivate", "rw"]


def test_a_read_only_root_makes_the_pods_files_read_only_but_not_its_memory() -> None:
    mount_list = mounts(security={"readonly_rootfs": True})
    assert at(mount_list, "/etc/hosts")["options"][-1] == "ro"
    assert at(mount_list, "/dev/shm")["options"][-1] == "rw"


@pytest.mark.parametrize(("privileged", "access"), [(False, "ro"), (True, "rw")])
def test_only_the_privileged_write_to_the_kernels_files(privileged: bool, access: str) -> None:
    mount_list = mounts(security={"privileged": privileged})
    for destination in ("/sys", "/sys/fs/cgroup"):
        assert at(mount_list, destination)["options"][-1] == access


@pytest.mark.parametrize(
    "path", ["/etc/hosts", "/dev/shm", "/dev/mqueue", "/proc", "/sys/fs/cgroup", "/etc/hosts/"]
)
def test_a_mount_takes_the_place_of_what_would_be_there(path: str) -> None:
    assert at(mounts(mount(path)), path.rstrip("/"))["source"] == "/data"


def test_a_mount_on_dev_takes_the_place_of_the_kernels_below() -> None:
    mount_list = mounts(mount("/dev"), mount("/dev/own"))
    below = [
        destination for destination in destinations(mount_list) if destination.startswith("/dev")
    ]
    assert below == ["/dev", "/dev/shm", "/dev/own"]


def test_a_pods_file_is_not_mounted_over_the_hosts() -> None:
    both_ways = pb.PROPAGATION_BIDIRECTIONAL
    asked = (mount("/dev", propagation=both_ways), mount("/etc", propagation=both_ways))
    mount_list = mounts(*asked, mountinfo=SHARED_DATA)
    assert not set(destinations(mount_list)) & set(PODS)


@pytest.mark.parametrize("path", ["/dev", "/dev/", "/dev/console"])
def test_a_terminal_is_not_mounted_over_the_hosts_console(path: str) -> None:
    asked = mount(path, propagation=pb.PROPAGATION_BIDIRECTIONAL)
    with pytest.raises(InvalidError, match="would cover /dev/console of the host"):
        mounts(asked, mountinfo=SHARED_DATA, tty=True)
    assert mounts(asked, mountinfo=SHARED_DATA)


@pytest.mark.parametrize(
    "asked",
    [
        mount("/dev"),
        mount("/dev", propagation=pb.PROPAGATION_HOST_TO_CONTAINER),
        mount("/data", propagation=pb.PROPAGATION_BIDIRECTIONAL),
    ],
)
def test_a_terminal_goes_with_other_mounts(asked: pb.Mount) -> None:
    assert at(mounts(asked, mountinfo=SHARED_DATA, tty=True), asked.container_path)


def test_with_the_hosts_ipc_its_shared_memory_is_there() -> None:
    options = pb.NamespaceOption(ipc=pb.NODE)
    assert at(mounts(pods=pod(namespace_options=options)), "/dev/shm")["source"] == "/dev/shm"


def test_mounts_come_after_those_they_lie_in() -> None:
    mount_list = mounts(mount("/a/b/c"), mount("/z"), mount("/a"), mount("/a/b"))
    own = [
        destination for destination in destinations(mount_list) if destination not in KERNEL + PODS
    ]
    assert own == ["/z", "/a", "/a/b", "/a/b/c"]


SHARED_DATA = "21 20 8:2 / /data rw shared:3 - ext4 /dev/sdb rw"


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, ["rbind", "rprivate", "rw"]),
        ({"readonly": True}, ["rbind", "rprivate", "ro"]),
        ({"readonly": True, "recursive_read_only": True}, ["rbind", "rprivate", "rro"]),
        ({"propagation": pb.PROPAGATION_HOST_TO_CONTAINER}, ["rbind", "rslave", "rw"]),
        ({"propagation": pb.PROPAGATION_BIDIRECTIONAL}, ["rbind", "rshared", "rw"]),
        ({"readonly": True, "image": pb.ImageSpec(image="i")}, ["rbind", "rprivate", "ro"]),
    ],
)
def test_options(fields: dict[str, Any], options: list[str]) -> None:
    mount_list = mounts(mount("/m", **fields), handler=ABLE, mountinfo=SHARED_DATA)
    assert at(mount_list, "/m") == {
        "destination": "/m",
        "type": "bind",
        "source": "/data",
        "options": options,
    }


@pytest.mark.parametrize(
    ("fields", "handler", "text"),
    [
        ({"recursive_read_only": True}, ABLE, "recursive_read_only requires readonly: true"),
        ({"recursive_read_only": True, "readonly": True,
          "propagation": pb.PROPAGATION_HOST_TO_CONTAINER}, ABLE,
         "requires PROPAGATION_PRIVATE, not PROPAGATION_HOST_TO_CONTAINER"),
        ({"recursive_read_only": True, "readonly": True}, HANDLER, "^RROUnsupported: mount /m"),
        ({"image": pb.ImageSpec(image="i")}, ABLE, "is an image mount, which requires readonly"),
        ({"uidMappings": [pb.IDMapping(host_id=1, length=1)]}, HANDLER, "has id mappings"),
        ({"propagation": 9}, HANDLER, "unknown propagation 9"),
        ({"propagation": pb.PROPAGATION_BIDIRECTIONAL}, HANDLER, "not a shared mount"),
    ],
)  # fmt: skip
def test_invalid_mounts_are_rejected(fields: dict[str, Any], handler: Any, text: str) -> None:
    info = "" if "mount" in text and "shared" in text else SHARED_DATA
    with pytest.raises(InvalidError, match=text):
        mounts(mount("/m", **fields), handler=handler, mountinfo=info)


def test_a_relative_path_in_the_container_is_refused() -> None:
    with pytest.raises(InvalidError, match="container_path 'm'"):
        mounts(mount("m"))


def test_id_mappings_go_with_their_mount() -> None:
    ids = [pb.IDMapping(host_id=65536, container_id=0, length=10)]
    mount_entry = at(mounts(mount("/m", uidMappings=ids, gidMappings=ids), handler=ABLE), "/m")
    expected = [{"containerID": 0, "hostID": 65536, "size": 10}]
    assert mount_entry["uidMappings"] == mount_entry["gidMappings"] == expected


def test_in_a_user_namespace_the_pods_files_are_its_roots() -> None:
    options = pb.NamespaceOption(userns_options=USERNS)
    in_users: dict[str, Any] = {"pods": pod(namespace_options=options), "handler": ABLE}
    hosts = at(mounts(**in_users, host=replace(HOST, kernel=(6, 3))), "/etc/hosts")
    assert hosts["uidMappings"][0]["hostID"] == 65536
    older = at(mounts(**in_users, host=replace(HOST, kernel=(6, 2))), "/etc/hosts")
    assert "uidMappings" not in older


def test_a_user_namespace_on_the_hosts_network_sees_the_hosts_sysfs() -> None:
    options = pb.NamespaceOption(network=pb.NODE, userns_options=USERNS)
    mount_entry = at(mounts(pods=pod(namespace_options=options), handler=ABLE), "/sys")
    assert (mount_entry["type"], mount_entry["source"]) == ("bind", "/sys")
    assert {"rbind", "rro"} <= set(mount_entry["options"])


def test_terminals_are_of_a_group_only_where_it_is_mapped() -> None:
    ids = [pb.IDMapping(host_id=65536, container_id=0, length=3)]
    users = pb.UserNamespace(mode=pb.POD, uids=ids, gids=ids)
    options = pb.NamespaceOption(userns_options=users)
    mount_entry = at(mounts(pods=pod(namespace_options=options), handler=ABLE), "/dev/pts")
    assert not any(option.startswith("gid=") for option in mount_entry["options"])
    assert "gid=5" in at(mounts(), "/dev/pts")["options"]


def test_a_holder_sees_little() -> None:
    asked = SandboxRequest(
        sandbox=sandbox(files=FILES), argv=("/init",), rootfs=Path("/r"), handler=HANDLER
    )
    result = sandbox_mounts(asked)
    assert destinations(result) == [*KERNEL, "/dev/shm", "/etc/resolv.conf"]


paths = st.lists(
    st.lists(st.sampled_from(["a", "b", "dev", "etc", "hosts"]), min_size=1, max_size=4).map(
        lambda parts: "/" + "/".join(parts)
    ),
    max_size=8,
)


@given(paths)
def test_no_mount_hides_one_that_came_before_it(asked: list[str]) -> None:
    mount_list = mounts(*(mount(path) for path in asked))
    seen: list[str] = []
    for destination in destinations(mount_list):
        assert not any(path.startswith(destination + "/") for path in seen)
        seen.append(destination)
    assert set(asked) <= set(seen)
    assert [path for path in seen if path in KERNEL and path not in asked] == [
        path
        for path in KERNEL
        if path not in asked and not (path.startswith("/dev/") and "/dev" in asked)
    ]


@pytest.mark.parametrize(
    ("destination", "kind", "options"),
    [
        ("/proc", "proc", ["nosuid", "noexec", "nodev"]),
        ("/dev", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
        ("/dev/pts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620",
                                "gid=5"]),
        ("/dev/mqueue", "mqueue", ["nosuid", "noexec", "nodev"]),
        ("/sys", "sysfs", ["nosuid", "noexec", "nodev", "ro"]),
        ("/sys/fs/cgroup", "cgroup", ["nosuid", "noexec", "nodev", "relatime", "ro"]),
    ],
)  # fmt: skip
def test_what_the_kernel_shows_is_mounted_as_other_engines_do(
    destination: str, kind: str, options: list[str]
) -> None:
    """Source: the mounts of containerd's and CRI-O's default specs."""
    mount_entry = at(mounts(), destination)
    assert (mount_entry["type"], mount_entry["source"]) == (kind, kind)
    assert sorted(mount_entry["options"]) == sorted(options)
