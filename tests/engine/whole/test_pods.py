"""Pods on a running engine: what a kubelet asks in a pod's life, under each kind of handler."""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
from pathlib import Path

import grpc
import pytest

from moorage.linux.mounts import current_mounts
from moorage.wire.cri import CriError, pb
from tests.engine.streams.callers import V4, by_channel, messages, spdy, websocket
from tests.engine.whole.engines import Caller, RunningEngine, eventually, log_lines, shell

pytestmark = [pytest.mark.runtime]

PROGRAMS = {"runc": "runc", "crun": "crun", "gvisor": "runsc"}
_STDOUT = 1
_SHM = Path("/dev/shm")
SLEEP = ("sleep", "1000")


@pytest.fixture(params=PROGRAMS)
def handler(request: pytest.FixtureRequest) -> str:
    if shutil.which(PROGRAMS[request.param]) is None:
        pytest.skip(f"{PROGRAMS[request.param]} is not installed")
    return str(request.param)


async def test_a_pod_runs_ends_and_leaves_its_log_and_code(caller: Caller, handler: str) -> None:
    pod = await caller.run_pod(handler)
    main = await caller.run(pod, *shell("echo out; echo err >&2; exit 3"))
    status = await caller.ended(main)
    assert (status.exit_code, status.reason) == (3, "Error")
    assert 0 < status.created_at <= status.started_at <= status.finished_at
    assert sorted(await caller.log_of(main)) == ["err", "out"]
    other = await caller.run(pod, "true", name="other")
    status = await caller.ended(other)
    assert (status.exit_code, status.reason) == (0, "Completed")


async def test_a_pod_has_its_name_an_address_and_other_containers_of_it_share_both(
    caller: Caller, handler: str
) -> None:
    pod = await caller.run_pod(handler, name="named")
    main = await caller.run(pod, *SLEEP)
    other = await caller.run(pod, *SLEEP, name="other")
    address = (await caller.pod_status(pod)).network.ip
    assert address
    for container in (main, other):
        answer = await caller.exec(container, "hostname")
        assert (answer.stdout, answer.exit_code) == (b"named\n", 0)
        assert (
            f"{address}\tnamed".encode()
            in (await caller.exec(container, "cat", "/etc/hosts")).stdout
        )


async def test_a_pod_in_the_hosts_ipc_namespace_shares_its_memory_and_mounts_nothing_over_it(
    caller: Caller, handler: str
) -> None:
    if handler == "gvisor":
        pytest.skip("gVisor has no host IPC")
    before = [mount for mount in current_mounts() if mount.point == _SHM]
    shared = _SHM / f"moorage-{secrets.token_hex(8)}"
    shared.write_text("host's")
    try:
        config = caller.pod_config()
        config.linux.security_context.namespace_options.ipc = pb.NODE
        sandbox = await caller.run_sandbox(config, handler)
        main = await caller.run(sandbox, *SLEEP)
        assert (await caller.exec(main, "cat", str(shared))).stdout == b"host's"
        assert [mount for mount in current_mounts() if mount.point == _SHM] == before
        await caller.remove_all()
        assert [mount for mount in current_mounts() if mount.point == _SHM] == before
        assert shared.read_text() == "host's"
    finally:
        shared.unlink()


async def test_a_command_gives_both_outputs_and_its_code(caller: Caller, handler: str) -> None:
    main = await caller.run(await caller.run_pod(handler), *SLEEP)
    answer = await caller.exec(main, *shell("echo o; echo e >&2; exit 7"))
    assert (answer.stdout, answer.stderr, answer.exit_code) == (b"o\n", b"e\n", 7)
    assert (await caller.exec(main, *shell("kill -9 $$"))).exit_code == 137


async def test_a_command_over_its_time_is_ended(caller: Caller, handler: str) -> None:
    main = await caller.run(await caller.run_pod(handler), *SLEEP)
    with pytest.raises(CriError) as raised:
        await caller.exec(main, "sleep", "4711", limit_s=1)
    assert raised.value.code is grpc.StatusCode.DEADLINE_EXCEEDED

    async def is_gone() -> bool:
        return b"4711" not in (await caller.exec(main, "ps")).stdout

    await eventually(is_gone, "the end of the command", 5)


async def test_what_a_command_leaves_behind_does_not_keep_its_caller(caller: Caller) -> None:
    main = await caller.run(await caller.run_pod(), *SLEEP)
    async with asyncio.timeout(5):
        answer = await caller.exec(main, *shell("sleep 300 & echo done"))
    assert (answer.stdout, answer.exit_code) == (b"done\n", 0)


async def test_missing_command_is_refused_in_one_line(caller: Caller) -> None:
    main = await caller.run(await caller.run_pod(), *SLEEP)
    with pytest.raises(CriError, match="no-such-command") as raised:
        await caller.exec(main, "/no-such-command")
    assert raised.value.code is grpc.StatusCode.UNKNOWN
    assert "\n" not in raised.value.sentence


async def test_a_command_gets_input_over_a_stream(caller: Caller) -> None:
    main = await caller.run(await caller.run_pod(), *SLEEP)
    request = pb.ExecRequest(
        container_id=main, cmd=shell("cat; exit 4"), stdin=True, stdout=True, stderr=True
    )
    url = (await caller.cri.call(caller.cri.runtime.Exec, request)).url
    async with spdy(url, "error", "stdin", "stdout", "stderr") as stream:
        await stream.write("stdin", b"given")
        await stream.end("stdin")
        came = await stream.all()
    assert came["stdout"] == b"given"
    cause = json.loads(came["error"])["details"]["causes"][0]
    assert cause == {"reason": "ExitCode", "message": "4"}


async def test_a_command_with_a_terminal_sees_one(caller: Caller) -> None:
    main = await caller.run(await caller.run_pod(), *SLEEP)
    request = pb.ExecRequest(container_id=main, cmd=["tty"], tty=True, stdout=True)
    url = (await caller.cri.call(caller.cri.runtime.Exec, request)).url
    async with websocket(url, V4) as connection:
        came = by_channel(await messages(connection))
    assert came[_STDOUT].startswith(b"/dev/pts/")


async def test_a_container_is_attached_to_and_its_input_ends(caller: Caller) -> None:
    pod = await caller.run_pod()
    main = await caller.run(pod, *shell("cat; echo over"), stdin=True, stdin_once=True)
    request = pb.AttachRequest(container_id=main, stdin=True, stdout=True, stderr=True)
    url = (await caller.cri.call(caller.cri.runtime.Attach, request)).url
    async with spdy(url, "error", "stdin", "stdout", "stderr") as stream:
        await stream.write("stdin", b"typed\n")
        await stream.until("stdout", b"typed\n")
        await stream.end("stdin")
        await stream.until("stdout", b"over")
    assert (await caller.ended(main)).exit_code == 0
    assert await caller.log_of(main) == ["typed", "over"]


async def test_a_port_in_a_pod_is_reached(caller: Caller) -> None:
    pod = await caller.run_pod()
    main = await caller.run(
        pod, *shell("echo answered >/tmp/index.html; httpd -f -p 127.0.0.1:8080 -h /tmp")
    )

    async def is_listening() -> bool:
        answer = await caller.exec(main, *shell("grep -q :1F90 /proc/net/tcp"))
        return answer.exit_code == 0

    await eventually(is_listening, "the server in the pod")
    request = pb.PortForwardRequest(pod_sandbox_id=pod, port=[8080])
    url = (await caller.cri.call(caller.cri.runtime.PortForward, request)).url
    async with websocket(f"{url}?port=8080", V4) as connection:
        await connection.send_bytes(b"\0GET /index.html HTTP/1.0\r\n\r\n")
        received = b""
        async with asyncio.timeout(10):
            while b"answered" not in received:
                received += bytes((await connection.receive()).data)


async def test_ids_may_be_shortened(caller: Caller) -> None:
    pod = await caller.run_pod()
    main = await caller.run(pod, *SLEEP)
    assert (await caller.pod_status(pod[:12])).id == pod
    assert (await caller.status(main[:12])).id == main
    reply = await caller.cri.call(
        caller.cri.runtime.ListContainers,
        pb.ListContainersRequest(filter=pb.ContainerFilter(pod_sandbox_id=pod[:12])),
    )
    assert [container.id for container in reply.containers] == [main]
    await caller.stop(main[:12])
    assert (await caller.status(main)).state == pb.CONTAINER_EXITED


async def test_events_report_a_pods_life_in_order(caller: Caller) -> None:
    seen: list[tuple[str, str]] = []
    listening = asyncio.create_task(_note_events(caller, seen))
    try:
        pod = await caller.run_pod()
        main = await caller.run(pod, *SLEEP)
        await caller.stop(main)
        await caller.stop_pod(pod)
        await caller.remove_pod(pod)

        async def has_arrived() -> bool:
            return (pod, "CONTAINER_DELETED_EVENT") in seen

        await eventually(has_arrived, "the last event")
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    life = ["CREATED", "STARTED", "STOPPED", "DELETED"]
    for id_ in (pod, main):
        kinds = [kind for about, kind in seen if about == id_]
        assert kinds == [f"CONTAINER_{kind}_EVENT" for kind in life], seen


def _renamed(log: Path) -> Path:
    return log.rename(log.with_suffix(".first"))


async def _note_events(caller: Caller, seen: list[tuple[str, str]]) -> None:
    stream = caller.cri.stream(caller.cri.runtime.GetContainerEvents, pb.GetEventsRequest())
    async for event in stream:
        kind = pb.ContainerEventType.Name(event.container_event_type)
        seen.append((event.container_id, kind))


async def test_reopened_log_loses_no_line(caller: Caller, handler: str) -> None:
    main = await caller.run(
        await caller.run_pod(handler),
        *shell("i=0; while [ $i -lt 400 ]; do echo $i; i=$((i+1)); usleep 1000; done"),
    )
    log = Path((await caller.status(main)).log_path)
    await caller.wait_for_line(main, "50")
    first = _renamed(log)
    request = pb.ReopenContainerLogRequest(container_id=main)
    await caller.cri.call(caller.cri.runtime.ReopenContainerLog, request)
    await caller.ended(main)
    assert log_lines(first) + log_lines(log) == [str(number) for number in range(400)]


async def test_limits_of_a_running_container_are_changed(caller: Caller) -> None:
    limits = pb.LinuxContainerResources(memory_limit_in_bytes=64 << 20)
    main = await caller.run(await caller.run_pod(), *SLEEP, resources=limits)
    wanted = pb.LinuxContainerResources(memory_limit_in_bytes=96 << 20)
    request = pb.UpdateContainerResourcesRequest(container_id=main, linux=wanted)
    await caller.cri.call(caller.cri.runtime.UpdateContainerResources, request)
    status = await caller.status(main)
    assert status.resources.linux.memory_limit_in_bytes == 96 << 20
    cgroup = (await caller.info(main))["cgroup"]
    limit_files = [
        Path(root + cgroup, file)
        for root, file in (
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        )
    ]
    assert [int(path.read_text()) for path in limit_files if path.exists()] == [96 << 20]


async def test_containers_of_a_pod_see_each_other_where_they_share_processes(
    caller: Caller,
) -> None:
    config = caller.pod_config(pid=pb.POD)
    pod = await caller.run_sandbox(config)
    main = await caller.run(pod, "sleep", "5123", pid=pb.POD)
    other = await caller.run(pod, *SLEEP, name="other", pid=pb.POD)
    assert b"5123" in (await caller.exec(other, "ps")).stdout
    await caller.stop(main)
    assert (await caller.status(other)).state == pb.CONTAINER_RUNNING


async def test_a_restarted_container_is_another_attempt(caller: Caller) -> None:
    pod = await caller.run_pod()
    first = await caller.run(pod, "false")
    await caller.ended(first)
    second = await caller.run(pod, *SLEEP, attempt=1)
    assert (await caller.status(second)).metadata.attempt == 1
    await caller.remove(first)
    assert set(await caller.containers()) == {second}


async def test_gvisor_shows_its_own_kernel(caller: Caller) -> None:
    if shutil.which("runsc") is None:
        pytest.skip("runsc is not installed")
    main = await caller.run(await caller.run_pod("gvisor"), *SLEEP)
    answer = await caller.exec(main, "dmesg")
    assert b"gVisor" in answer.stdout


async def test_the_status_lists_the_handlers(caller: Caller, engine: RunningEngine) -> None:
    reply = await caller.cri.call(caller.cri.runtime.Status, pb.StatusRequest())
    names = {handler.name for handler in reply.runtime_handlers}
    assert {"", "runc"} <= names
    assert all(condition.status for condition in reply.status.conditions), reply.status
    version = await caller.cri.call(caller.cri.runtime.Version, pb.VersionRequest())
    assert version.runtime_api_version == "v1"
    assert engine.rss_bytes < 150 << 20
