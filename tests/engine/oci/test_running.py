"""Specs as real runtimes understand them: what a process in the container sees of itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from moorage.engine.oci import (
    CdiDirectories,
    ContainerRequest,
    Document,
    HandlerTraits,
    ImageDefaults,
    Rlimit,
    SandboxFiles,
    SandboxRequest,
    SpecWriter,
    exec_process,
    look_at_host,
    look_up_container,
    look_up_sandbox,
    resolve_identity,
)
from moorage.linux.capabilities import NEEDED
from moorage.linux.mounts import current_mounts, mount, mounts_below, unmount
from moorage.wire.cri import pb
from tests.engine.oci.requests import ABLE, container, pod, sandbox
from tests.engine.oci.test_namespaces import USERNS

BUSYBOX = shutil.which("busybox")
DEADLINE_S = 30

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(os.geteuid() != 0, reason="runtimes need root here"),
    pytest.mark.skipif(BUSYBOX is None, reason="busybox is not installed"),
]

Run = Callable[..., str]


@pytest.fixture(scope="module")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system of busybox alone, with one user of its own."""
    root = tmp_path_factory.mktemp("image")
    root.chmod(0o755)
    for name in ("bin", "etc", "proc", "sys", "dev", "tmp"):
        (root / name).mkdir()
    (root / "tmp").chmod(0o1777)
    assert BUSYBOX is not None
    shutil.copy(BUSYBOX, root / "bin/busybox")
    for name in ("sh", "cat", "grep", "id", "ls", "hostname", "touch", "stat", "mknod", "mount"):
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nweb:x:1001:1002::/:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nweb:x:1002:\nlogs:x:1500:web\n")
    (root / "secret").write_text("seen\n")
    return root


@pytest.fixture(scope="module", params=["runc", "crun"])
def runtime(request: pytest.FixtureRequest) -> list[str]:
    """A runtime's command line; skipped where it can't run anything."""
    name = request.param
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    if not look_at_host().own_capabilities >= set(NEEDED):
        pytest.skip("this root lacks capabilities that runtimes need")
    command = [program, "--root", f"/run/moorage-spec-test-{uuid.uuid4().hex[:8]}"]
    if name == "crun":
        # On a hybrid layout with hugetlb on version 2 this version refuses any cgroup.
        command += ["--cgroup-manager", "disabled"]
    return command


@pytest.fixture
def run(runtime: list[str], tmp_path: Path) -> Iterator[Run]:
    """Runs a spec to its end, for its output; or, when it is to stay, for its name.

    Whatever became of it, nothing of it is left.
    """
    name = f"spec-{uuid.uuid4().hex[:12]}"

    def running(spec: Document, stays: bool = False) -> str:
        (tmp_path / "config.json").write_bytes(msgspec.json.encode(spec))
        # Inputs are pipes and outputs files or pipes: crun hands all of them to the container's
        # user, and /dev/null is the host's.
        if stays:
            with (tmp_path / "output").open("wb") as output:
                # Not a pipe that is read: the container inherits it and keeps it open.
                subprocess.run(
                    [*runtime, "run", "--detach", "--bundle", str(tmp_path), name],
                    input=b"", stdout=output, stderr=output, timeout=DEADLINE_S, check=True,
                )  # fmt: skip
            return name
        done = subprocess.run(
            [*runtime, "run", "--bundle", str(tmp_path), name],
            capture_output=True, text=True, timeout=DEADLINE_S, check=False, input="",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        yield running
    finally:
        subprocess.run([*runtime, "delete", "--force", name], capture_output=True, check=False)
        shutil.rmtree(runtime[2], ignore_errors=True)


@pytest.fixture
def pins() -> Iterator[dict[str, str]]:
    """The namespaces of a process that holds them, as a pod's are pinned."""
    holder = subprocess.Popen(
        ["unshare", "--net", "--ipc", "--uts", "sh", "-c", "hostname pinned; echo; exec sleep 60"],
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield {
            f"{kind}ns": f"/proc/{holder.pid}/ns/{name}"
            for kind, name in (("net", "net"), ("ipc", "ipc"), ("uts", "uts"))
        }
    finally:
        holder.kill()
        holder.communicate()


def written(
    config: pb.ContainerConfig,
    rootfs: Path,
    pins: dict[str, str],
    *,
    pod_config: pb.PodSandboxConfig | None = None,
    files: SandboxFiles = SandboxFiles(),  # noqa: B008
    rlimits: tuple[Rlimit, ...] = (),
) -> Document:
    host, handler = look_at_host(), HandlerTraits(name="test", has_recursive_read_only=True)
    asked = ContainerRequest(
        id=uuid.uuid4().hex,
        config=config,
        sandbox=sandbox(pod_config, files=files, hostname="pinned", **pins),
        image=ImageDefaults(user="web"),
        identity=resolve_identity(config.linux.security_context, "web", rootfs),
        rootfs=rootfs,
        handler=handler,
        rlimits=rlimits,
    )
    asked.sandbox.config.linux.cgroup_parent = "/moorage-spec-test"
    findings = look_up_container(config, handler, host, CdiDirectories())
    return SpecWriter(host).container(asked, findings)


@pytest.fixture(autouse=True, scope="module")
def machine_as_before() -> Iterator[None]:
    before = os.stat("/dev/null")
    yield
    for directory in Path("/sys/fs/cgroup").glob("**/moorage-spec-test"):
        directory.rmdir()
    after = os.stat("/dev/null")
    assert (after.st_uid, after.st_gid, after.st_mode) == (
        before.st_uid,
        before.st_gid,
        before.st_mode,
    )


def shell(script: str, **fields: object) -> pb.ContainerConfig:
    return container(command=["/bin/sh", "-c", script], **fields)


def test_the_image_user_with_its_groups_runs_the_process(
    run: Run, rootfs: Path, pins: dict[str, str]
) -> None:
    script = "id -u; id -g; id -G; hostname; echo $HOSTNAME; echo $A; pwd"
    config = shell(script, envs=[pb.KeyValue(key="A", value=b"b c")], working_dir="/made/here")
    try:
        seen = run(written(config, rootfs, pins)).split("\n")
    finally:
        shutil.rmtree(rootfs / "made", ignore_errors=True)
    assert seen[:7] == ["1001", "1002", "1002 1500", "pinned", "pinned", "b c", "/made/here"]


def test_capabilities_and_filters_are_those_of_the_status_file(
    run: Run, rootfs: Path, pins: dict[str, str]
) -> None:
    config = shell(
        "grep -E '^(Cap|Secc|NoNew)' /proc/self/status",
        security={
            "run_as_user": pb.Int64Value(value=0),
            "no_new_privs": True,
            "seccomp": pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault),
            "capabilities": pb.Capability(
                drop_capabilities=["ALL"], add_capabilities=["CHOWN", "KILL"]
            ),
        },
    )
    seen = dict(line.split(":\t") for line in run(written(config, rootfs, pins)).splitlines())
    assert int(seen["CapEff"], 16) == int(seen["CapBnd"], 16) == 1 << 0 | 1 << 5
    assert (seen["CapAmb"].strip("0"), seen["Seccomp"], seen["NoNewPrivs"]) == ("", "2", "1")


def test_ambient_capabilities_reach_a_user_other_than_root(
    run: Run, rootfs: Path, pins: dict[str, str]
) -> None:
    capabilities = pb.Capability(add_ambient_capabilities=["NET_BIND_SERVICE"])
    config = shell("grep CapEff /proc/self/status", security={"capabilities": capabilities})
    assert int(run(written(config, rootfs, pins)).split()[1], 16) == 1 << 10


def test_the_built_in_filter_lets_a_shell_work_and_refuses_new_namespaces(
    run: Run, rootfs: Path, pins: dict[str, str]
) -> None:
    config = shell(
        "busybox unshare -m true 2>/dev/null || echo refused; (echo a; echo b) | grep b",
        security={
            "run_as_user": pb.Int64Value(value=0),
            "seccomp": pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault),
        },
    )
    assert run(written(config, rootfs, pins)).split() == ["refused", "b"]


def test_a_profile_of_the_nodes_is_enforced(
    run: Run, rootfs: Path, pins: dict[str, str], tmp_path: Path
) -> None:
    profile = tmp_path / "no-mkdir.json"
    rule = {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}
    profile.write_bytes(
        msgspec.json.encode({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]})
    )
    asked = pb.SecurityProfile(
        profile_type=pb.SecurityProfile.Localhost, localhost_ref=str(profile)
    )
    config = shell("busybox mkdir /tmp/x 2>&1 || true", security={"seccomp": asked})
    assert "Operation not permitted" in run(written(config, rootfs, pins))


def test_paths_are_masked_and_the_root_is_read_only(
    run: Run, rootfs: Path, pins: dict[str, str]
) -> None:
    config = shell(
        "cat /secret; touch /tmp/x 2>&1; touch /proc/sys/kernel/sem 2>&1; true",
        security={
            "readonly_rootfs": True,
            "masked_paths": ["/secret"],
            "readonly_paths": ["/proc/sys"],
            "run_as_user": pb.Int64Value(value=0),
        },
    )
    seen = run(written(config, rootfs, pins))
    assert "seen" not in seen
    assert seen.count("Read-only file system") == 2


def test_mounts_are_there_with_what_they_allow(
    run: Run, rootfs: Path, pins: dict[str, str], tmp_path: Path
) -> None:
    real = tmp_path / "real"
    real.mkdir(mode=0o777)
    real.chmod(0o777)
    (real / "file").write_text("of the host\n")
    (tmp_path / "link").symlink_to(real)
    hosts = tmp_path / "hosts"
    hosts.write_text("10.0.0.1 web\n")
    config = shell(
        "cat /data/file /etc/hosts; touch /data/x 2>&1; touch /data/made/y && ls /data/made",
        mounts=[
            pb.Mount(container_path="/data/made", host_path=str(tmp_path / "absent")),
            pb.Mount(container_path="/data", host_path=str(tmp_path / "link"), readonly=True),
        ],
        security={"run_as_user": pb.Int64Value(value=0)},
    )
    (real / "made").mkdir()
    seen = run(written(config, rootfs, pins, files=SandboxFiles(hosts=hosts))).splitlines()
    assert seen[:2] == ["of the host", "10.0.0.1 web"]
    assert "Read-only file system" in seen[2]
    assert seen[3:] == ["y"]
    assert (tmp_path / "absent/y").exists()


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A shared file system in memory with another one in it."""
    point = tmp_path / "mounted"
    point.mkdir()
    mount("none", point, "tmpfs", "size=1m")
    try:
        subprocess.run(["mount", "--make-shared", str(point)], check=True)
        (point / "sub").mkdir()
        mount("none", point / "sub", "tmpfs", "size=1m")
        yield point
    finally:
        for mount_point in mounts_below(point, current_mounts()):
            unmount(mount_point.point)


@pytest.mark.parametrize(
    ("propagation", "tag"),
    [
        (pb.PROPAGATION_PRIVATE, ""),
        (pb.PROPAGATION_HOST_TO_CONTAINER, "master"),
        (pb.PROPAGATION_BIDIRECTIONAL, "shared"),
    ],
)
def test_mounts_travel_as_they_are_asked_to(
    run: Run,
    rootfs: Path,
    pins: dict[str, str],
    mounted: Path,
    propagation: pb.MountPropagation.ValueType,
    tag: str,
) -> None:
    asked = pb.Mount(container_path="/m", host_path=str(mounted), propagation=propagation)
    config = shell("grep ' /m ' /proc/self/mountinfo", mounts=[asked])
    tags = run(written(config, rootfs, pins)).partition(" - ")[0].split(" ")[6:]
    assert {line.partition(":")[0] for line in tags} == ({tag} if tag else set())


@pytest.mark.parametrize(
    ("is_recursive", "message"), [(False, ""), (True, "Read-only file system")]
)
def test_read_only_reaches_inner_mounts_only_when_asked(
    run: Run, rootfs: Path, pins: dict[str, str], mounted: Path, is_recursive: bool, message: str
) -> None:
    asked = pb.Mount(
        container_path="/m",
        host_path=str(mounted),
        readonly=True,
        recursive_read_only=is_recursive,
    )
    config = shell(
        "touch /m/sub/x 2>&1; true",
        mounts=[asked],
        security={"run_as_user": pb.Int64Value(value=0)},
    )
    assert message in run(written(config, rootfs, pins))
    assert (mounted / "sub/x").exists() is not is_recursive


@pytest.mark.parametrize("network", [pb.POD, pb.NODE], ids=["pod network", "host network"])
def test_a_pods_root_is_a_user_like_any_other_outside(
    run: Run, rootfs: Path, network: pb.NamespaceMode.ValueType
) -> None:
    # The mapped root has no right to pass through the directories tests are given.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        place = Path(directory)
        place.chmod(0o755)
        shutil.copytree(rootfs, place / "root", symlinks=True)
        config = pod(namespace_options=pb.NamespaceOption(network=network, userns_options=USERNS))
        config.linux.cgroup_parent = "/moorage-spec-test"
        host = look_at_host()
        asked = SandboxRequest(
            sandbox=sandbox(config, netns="", ipcns="", utsns=""),
            argv=("/bin/sh", "-c", "cat /proc/self/uid_map; grep -c ' /sys ' /proc/mounts"),
            rootfs=place / "root",
            handler=ABLE,
        )
        spec = SpecWriter(host).sandbox(asked, look_up_sandbox(config, ABLE, host))
        assert run(spec).split() == ["0", "65536", "65536", "1"]


def test_limits_of_resources_and_terms_of_the_process_are_set(
    run: Run, rootfs: Path, pins: dict[str, str]
) -> None:
    config = shell("busybox ulimit -n 2>/dev/null || ulimit -n; cat /proc/self/oom_score_adj",
                   resources={"oom_score_adj": 321})  # fmt: skip
    limits = (Rlimit(name="RLIMIT_NOFILE", soft=321, hard=654),)
    assert run(written(config, rootfs, pins, rlimits=limits)).split() == ["321", "321"]


def test_a_device_is_there_for_whom_it_was_asked(
    run: Run, rootfs: Path, pins: dict[str, str]
) -> None:
    device = pb.Device(container_path="/dev/nothing", host_path="/dev/null", permissions="rw")
    config = shell("stat -c %t:%T /dev/nothing; echo x >/dev/nothing; echo $?", devices=[device],
                   security={"run_as_user": pb.Int64Value(value=0)})  # fmt: skip
    assert run(written(config, rootfs, pins)).split() == ["1:3", "0"]


def test_a_device_that_was_not_asked_cannot_be_opened(
    run: Run, runtime: list[str], rootfs: Path, pins: dict[str, str]
) -> None:
    if "disabled" in runtime:
        pytest.skip("without cgroups devices are not guarded")
    # 1:2 is the machine's memory.
    script = "mknod /dev/m c 1 2 && cat /dev/m 2>&1 >/dev/null || true; cat /dev/null && echo fine"
    config = shell(script, security={"run_as_user": pb.Int64Value(value=0)})
    assert run(written(config, rootfs, pins)).splitlines() == [
        "cat: can't open '/dev/m': Operation not permitted",
        "fine",
    ]


def test_a_privileged_container_has_the_machines_devices_and_a_writable_sys(
    run: Run, rootfs: Path, pins: dict[str, str]
) -> None:
    script = "grep -c ' /sys sysfs rw' /proc/mounts; grep Seccomp: /proc/self/status; ls /dev"
    config = shell(script, security={"privileged": True, "run_as_user": pb.Int64Value(value=0)})
    seen = run(written(config, rootfs, pins, pod_config=pod(privileged=True))).split()
    assert seen[:3] == ["1", "Seccomp:", "0"]
    # The kernel's log is a device no other container gets.
    assert ("kmsg" in seen[3:]) == Path("/dev/kmsg").exists()


def test_a_second_command_is_confined_as_the_first(
    run: Run, runtime: list[str], rootfs: Path, pins: dict[str, str], tmp_path: Path
) -> None:
    asked = {
        "capabilities": pb.Capability(drop_capabilities=["ALL"]),
        "seccomp": pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault),
        "no_new_privs": True,
    }
    config = container(command=["/bin/busybox", "sleep", "60"], security=asked)
    spec = written(config, rootfs, pins)
    script = "id -u; id -G; hostname; grep -E '^(CapBnd|Seccomp|NoNewPrivs):' /proc/self/status"
    process = exec_process(["/bin/sh", "-c", script], spec["process"])
    (tmp_path / "process.json").write_bytes(msgspec.json.encode(process))
    name = run(spec, True)
    done = subprocess.run(
        [*runtime, "exec", "--process", str(tmp_path / "process.json"), name],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False, input="",
    )  # fmt: skip
    assert done.stdout.split() == [
        "1001", "1002", "1500", "pinned", "CapBnd:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2",
    ], done.stderr  # fmt: skip


def test_host_namespaces_are_the_hosts(run: Run, rootfs: Path) -> None:
    options = pb.NamespaceOption(network=pb.NODE, pid=pb.NODE, ipc=pb.NODE)
    config = shell(
        "for n in net pid ipc uts; do busybox readlink /proc/self/ns/$n; done",
        security={"namespace_options": options, "run_as_user": pb.Int64Value(value=0)},
    )
    seen = run(written(config, rootfs, {}, pod_config=pod(namespace_options=options))).split()
    assert seen == [os.readlink(f"/proc/self/ns/{name}") for name in ("net", "pid", "ipc", "uts")]


def test_a_holder_has_the_pods_hostname_and_parameters_and_no_capability(
    run: Run, rootfs: Path
) -> None:
    host, handler = look_at_host(), HandlerTraits(name="test")
    config = pod(seccomp=pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault))
    config.linux.cgroup_parent = "/moorage-spec-test"
    config.linux.sysctls["net.core.somaxconn"] = "77"
    script = (
        "hostname; cat /proc/sys/net/core/somaxconn /proc/sys/net/ipv4/ip_unprivileged_port_start;"
        "grep -E 'CapBnd|Seccomp:' /proc/self/status"
    )
    context = sandbox(config, hostname="web-1", netns="", ipcns="", utsns="")
    spec = SpecWriter(host).sandbox(
        SandboxRequest(
            sandbox=context, argv=("/bin/sh", "-c", script), rootfs=rootfs, handler=handler
        ),
        look_up_sandbox(config, handler, host),
    )
    seen = run(spec).split()
    assert seen == ["web-1", "77", "0", "CapBnd:", "0" * 16, "Seccomp:", "2"]
