"""Virtual machines outside their pods' cgroups, as Kata's default has them: a fake shim around
runc's, which starts a process in the place of a hypervisor.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Iterator

import pytest

from moorage.linux.cgroup_control import has_cgroup, process_ids
from moorage.linux.cgroups import OUTSIDE, current_cgroups, outside_cgroup
from moorage.wire.cri import CriError, pb
from tests.engine.streams.callers import V4, websocket
from tests.engine.whole.engines import Caller, RunningEngine, eventually, until

pytestmark = [pytest.mark.runtime]

SHIM = "containerd-shim-runc-v2"
MEBIBYTE = 1 << 20
_FAKE_SHIM = """\
case "$*" in *" start")
if grep -q 'container-type": *"sandbox"' config.json; then
    for word in "$@"; do [ "$last" != -id ] || id=$word; last=$word; done
    {python} {guest} "$id" </dev/null >/dev/null 2>&1 &
    until [ -e {root}/ready-"$id" ]; do sleep 0.05; done
    [ ! -e {root}/fails ] || exit 1
fi;; esac
exec {shim} "$@"
"""
_GUEST = """\
import os, pathlib, signal, sys
root, sandbox = pathlib.Path({root!r}), sys.argv[1]
for hierarchy in {hierarchies!r}:
    place = pathlib.Path(hierarchy, "kata_overhead", sandbox)
    place.mkdir(parents=True)
    for name in ("cpuset.cpus", "cpuset.mems"):
        for one in (place.parent, place):
            if (one / name).exists():
                (one / name).write_text((one.parent / name).read_text())
    (place / "cgroup.procs").write_text(str(os.getpid()))
data = bytearray(64 << 20)
signal.signal(signal.SIGUSR1, lambda *_: data.extend(bytes(512 << 20)))
(root / ("pid-" + sandbox)).write_text(str(os.getpid()))
(root / ("ready-" + sandbox)).touch()
while True:
    signal.pause()
"""
_HANDLER = """adapter = "shim"
binary = "{binary}"
[options]
runtime_type = "io.containerd.runc.v2"
needs_sandbox = true
config_path = "{configuration}"
"""


@pytest.fixture
def handler(engine: RunningEngine) -> Iterator[str]:
    """A handler whose fake shim starts a guest outside the pod's cgroup."""
    shim = shutil.which(SHIM)
    if shim is None:
        pytest.skip(f"{SHIM} is not installed")
    name = f"fake{secrets.token_hex(3)}"
    hierarchies = [str(path) for path in current_cgroups().hierarchies]
    script = engine.root / "fake_guest.py"
    script.write_text(_GUEST.format(root=str(engine.root), hierarchies=hierarchies))
    had_parent = has_cgroup(current_cgroups(), OUTSIDE)
    binary = engine.program(
        name,
        _FAKE_SHIM.format(python=sys.executable, guest=script, root=engine.root, shim=shim),
    )
    configuration = engine.root / "kata.toml"
    configuration.write_text("")
    (engine.handlers / f"{name}.toml").write_text(
        _HANDLER.format(binary=binary, configuration=configuration)
    )
    yield name
    if not had_parent:
        for hierarchy in current_cgroups().hierarchies:
            parent = hierarchy / OUTSIDE[1:]
            if parent.is_dir():
                parent.rmdir()


async def offered(caller: Caller, handler: str) -> None:
    async def is_offered() -> bool:
        status = await caller.cri.call(caller.cri.runtime.Status, pb.StatusRequest())
        return handler in {offered.name for offered in status.runtime_handlers}

    await eventually(is_offered, f"handler {handler}")


async def sandbox_stats(caller: Caller, pod: str) -> pb.PodSandboxStats:
    request = pb.PodSandboxStatsRequest(pod_sandbox_id=pod)
    return (await caller.cri.call(caller.cri.runtime.PodSandboxStats, request)).stats


async def test_a_guest_outside_counts_as_its_pods_and_goes_with_it(
    handler: str, caller: Caller, engine: RunningEngine
) -> None:
    await offered(caller, handler)
    pod = await caller.run_pod(handler)
    assert process_ids(current_cgroups(), outside_cgroup(pod))
    await caller.run(pod, "sleep", "1000")
    stats = await sandbox_stats(caller, pod)
    assert stats.linux.memory.rss_bytes.value >= 64 * MEBIBYTE
    (container,) = stats.linux.containers
    # What the shim itself counts of the container, not a share of the pod's.
    assert 0 < container.memory.usage_bytes.value < 32 * MEBIBYTE
    assert container.cpu.usage_core_nano_seconds.value > 0
    other = await caller.run_pod(handler)
    warnings = [
        line for line in engine.log_text.splitlines()
        if "run outside their pods' cgroups" in line and handler in line
    ]  # fmt: skip
    assert len(warnings) == 1
    assert f"sandbox_cgroup_only = true in {engine.root}/kata.toml" in warnings[0]
    for one in (pod, other):
        await caller.remove_pod(one)
        assert not has_cgroup(current_cgroups(), outside_cgroup(one))


async def test_a_guest_that_the_kernel_kills_for_memory_ends_its_containers_so(
    handler: str, caller: Caller, engine: RunningEngine
) -> None:
    memory = current_cgroups().v1.get("memory")
    if memory is None:
        pytest.skip("the fake guest's limit is set with version 1")
    await offered(caller, handler)
    pod = await caller.run_pod(handler)
    container = await caller.run(pod, "sleep", "1000")
    place = memory / outside_cgroup(pod)[1:]
    (place / "memory.limit_in_bytes").write_text(str(128 * MEBIBYTE))
    pid = int((engine.root / f"pid-{pod}").read_text())
    os.kill(pid, signal.SIGUSR1)
    until(lambda: not process_ids(current_cgroups(), outside_cgroup(pod)), "the guest's end")
    await caller.stop(container)
    status = await caller.status(container)
    assert (status.exit_code, status.reason) == (137, "OOMKilled")


async def test_a_port_of_a_guest_is_dialled_at_the_pods_address(
    caller: Caller, engine: RunningEngine
) -> None:
    """A server that listens at the pod's address alone, as seen from the host of a guest."""
    shim = shutil.which(SHIM)
    if shim is None:
        pytest.skip(f"{SHIM} is not installed")
    name = f"vm{secrets.token_hex(3)}"
    (engine.handlers / f"{name}.toml").write_text(
        f'adapter = "shim"\nbinary = "{shim}"\n[options]\nruntime_type = "io.containerd.vm.v2"\n'
    )
    await offered(caller, name)
    pod = await caller.run_pod(name)
    address = (await caller.pod_status(pod)).network.ip
    main = await caller.run(
        pod, "sh", "-c", f"echo inside >/tmp/index.html; httpd -f -p {address}:8080 -h /tmp"
    )

    async def is_listening() -> bool:
        answer = await caller.exec(main, "grep", "-q", ":1F90", "/proc/net/tcp")
        return answer.exit_code == 0

    await eventually(is_listening, "the server in the pod")
    request = pb.PortForwardRequest(pod_sandbox_id=pod, port=[8080])
    url = (await caller.cri.call(caller.cri.runtime.PortForward, request)).url
    async with websocket(f"{url}?port=8080", V4) as connection:
        await connection.send_bytes(b"\0GET /index.html HTTP/1.0\r\n\r\n")
        received = b""
        async with asyncio.timeout(10):
            while b"inside" not in received:
                received += bytes((await connection.receive()).data)


async def test_the_guest_of_a_creation_that_failed_is_removed(
    handler: str, caller: Caller, engine: RunningEngine
) -> None:
    await offered(caller, handler)
    (engine.root / "fails").touch()
    try:
        with pytest.raises(CriError):
            await caller.run_pod(handler)
    finally:
        (engine.root / "fails").unlink()
    made = [path.name.removeprefix("ready-") for path in engine.root.glob("ready-*")]
    assert made
    assert not [one for one in made if has_cgroup(current_cgroups(), outside_cgroup(one))]
