"""Whole OCI documents for requests of many kinds, against recorded ones.

A document is compared part by part: `process`, `mounts`, `linux.resources` and so on.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moorage.engine.oci import Findings, HandlerTraits, Rlimit, SandboxRequest, SpecWriter
from moorage.engine.oci.identity import Identity
from moorage.wire.cri import pb
from tests.engine.oci.requests import ABLE, HANDLER, HOST, V2_HOST, container, pod, sandbox, spec_of
from tests.engine.oci.test_namespaces import USERNS
from tests.recording import assert_recorded, digest

Profile = pb.SecurityProfile
_RESOURCES = {
    "cpu_period": 100_000, "cpu_quota": 50_000, "cpu_shares": 512, "memory_limit_in_bytes": 1 << 28,
    "oom_score_adj": 999, "cpuset_cpus": "0-1", "cpuset_mems": "0",
    "hugepage_limits": [pb.HugepageLimit(page_size="2MB", limit=1 << 21)],
    "unified": {"memory.high": "100"}, "memory_swap_limit_in_bytes": 1 << 28,
}  # fmt: skip
_MOUNTS = [
    pb.Mount(container_path="/data", host_path="/h/data"),
    pb.Mount(container_path="/data/inner", host_path="/h/inner", readonly=True),
    pb.Mount(container_path="/dev/shm", host_path="/h/shm"),
    pb.Mount(container_path="/shared", host_path="/h/s",
             selinux_relabel=True),
]  # fmt: skip
_MASKED = {"masked_paths": ["/proc/kcore"], "readonly_paths": ["/proc/sys"]}
_CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": (container(), {}),
    "plain v2": (container(), {"host": V2_HOST}),
    "command": (
        container(command=["a", "b"], args=["c"], working_dir="/w", tty=True,
                  envs=[pb.KeyValue(key="A", value=b"1"), pb.KeyValue(key="B", value=b"2")],
                  labels={"l": "1"}, annotations={"x.io/a": "1", "y": "2"}),
        {"handler": replace(HANDLER, annotation_patterns=("x.io/*",),
                            container_annotation_patterns=("y",))},
    ),
    "resources": (
        container(resources={key: value for key, value in _RESOURCES.items() if key != "unified"}),
        {},
    ),
    "resources v2": (container(resources=_RESOURCES), {"host": V2_HOST}),
    "mounts": (container(mounts=_MOUNTS), {}),
    "masked": (container(security={**_MASKED, "readonly_rootfs": True, "no_new_privs": True}), {}),
    "capabilities": (
        container(security={"capabilities": pb.Capability(
            add_capabilities=["NET_ADMIN"], drop_capabilities=["CHOWN", "KILL"])}), {},
    ),
    "all capabilities": (
        container(security={"capabilities": pb.Capability(add_capabilities=["ALL"],
                                                          drop_capabilities=["SYS_ADMIN"])}), {},
    ),
    "seccomp": (
        container(security={"seccomp": Profile(profile_type=Profile.RuntimeDefault)}), {},
    ),
    "unconfined": (
        container(security={"seccomp": Profile(profile_type=Profile.Unconfined)}), {},
    ),
    "privileged": (
        container(security={"privileged": True}), {"sandbox": sandbox(pod(privileged=True))},
    ),
    "user": (
        container(), {"identity": Identity(5, 6, (6, 7), "web"),
                      "rlimits": (Rlimit(name="RLIMIT_NOFILE", soft=10, hard=20),)},
    ),
    "shared processes": (
        container(security={"namespace_options": pb.NamespaceOption(pid=pb.POD)}),
        {"sandbox": sandbox(infra_pid=7)},
    ),
    "host": (
        container(security={"namespace_options": pb.NamespaceOption(
            network=pb.NODE, pid=pb.NODE, ipc=pb.NODE)}),
        {"sandbox": sandbox(pod(namespace_options=pb.NamespaceOption(
            network=pb.NODE, pid=pb.NODE, ipc=pb.NODE)), netns="", ipcns="", utsns="")},
    ),
    "target": (
        container(security={"namespace_options": pb.NamespaceOption(pid=pb.TARGET, target_id="x")}),
        {"target_pid": 99},
    ),
    "users": (
        container(security={"namespace_options": pb.NamespaceOption(
            pid=pb.CONTAINER, userns_options=USERNS)}, mounts=_MOUNTS[:1]),
        {"handler": ABLE, "sandbox": sandbox(
            pod(namespace_options=pb.NamespaceOption(userns_options=USERNS)),
            userns="/run/pins/user")},
    ),
    "virtual": (
        container(), {"handler": HandlerTraits(name="kata", is_virtualised=True)},
    ),
}  # fmt: skip


def parts(document: Any) -> dict[str, Any]:
    """The document's parts; long ones as digests."""
    table: dict[str, Any] = {}
    for name, value in document.items():
        inner = value.items() if name in ("process", "linux") else ((None, value),)
        for key, content in inner:
            text = content if len(repr(content)) < 400 else digest(content)
            table[name if key is None else f"{name}.{key}"] = text
    return table


@pytest.mark.parametrize("name", _CASES)
def test_containers(name: str) -> None:
    config, more = _CASES[name]
    assert_recorded(f"engine/oci/{name.replace(' ', '-')}", parts(spec_of(config, **more)))


@pytest.mark.parametrize("name", ["pod", "pod-v2", "pod-privileged", "pod-host"])
def test_sandboxes(name: str) -> None:
    options: dict[str, Any] = {}
    if name == "pod-privileged":
        options = {"privileged": True}
    if name == "pod-host":
        host = pb.NamespaceOption(network=pb.NODE, pid=pb.NODE, ipc=pb.NODE)
        options = {"namespace_options": host}
    asked = SandboxRequest(
        sandbox=sandbox(pod(**options)), argv=("/init", "--hold"), rootfs=Path("/holder"),
        handler=HANDLER, env={"A": "1"},
    )  # fmt: skip

    writer = SpecWriter(V2_HOST if name == "pod-v2" else HOST)
    assert_recorded(f"engine/oci/{name}", parts(writer.sandbox(asked, Findings())))
