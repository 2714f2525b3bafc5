"""Pods with a user namespace of their own: root inside has no rights outside.

Debian's runtimes don't say that they have user namespaces, so a stand-in says it for runc, which
can make them all the same.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from moorage.wire.cri import CriError, pb
from tests.engine.whole.engines import Caller, RunningEngine, eventually, shell

pytestmark = [pytest.mark.runtime]

FIRST, COUNT = 200_000, 65_536
_FEATURES = {
    "ociVersionMin": "1.0.0",
    "ociVersionMax": "1.1.0",
    "linux": {"namespaces": ["user"], "mountExtensions": {"idmap": {"enabled": True}}},
}
_SCRIPT = f"""case "$*" in
features) echo '{json.dumps(_FEATURES)}'; exit 0 ;;
*" create "*) for stream in 0 1 2; do
  if [ -c /proc/self/fd/$stream ]; then echo $stream >>"$0.devices"; fi
done ;;
esac
exec runc "$@"
"""


@pytest.fixture
async def mapped(engine: RunningEngine, caller: Caller) -> AsyncIterator[str]:
    """A handler that has user namespaces, listed by the engine."""
    file = engine.define("mapped", engine.program("mapped", _SCRIPT))

    async def is_listed() -> bool:
        status = await caller.cri.call(caller.cri.runtime.Status, pb.StatusRequest())
        offered = {
            handler.name: handler.features.user_namespaces for handler in status.runtime_handlers
        }
        return bool(offered.get("mapped"))

    await eventually(is_listed, "the handler's feature")
    yield "mapped"
    file.unlink()


def user_namespace_options() -> pb.NamespaceOption:
    """The options of a pod with a user namespace."""
    mapping = [pb.IDMapping(host_id=FIRST, container_id=0, length=COUNT)]
    users = pb.UserNamespace(mode=pb.POD, uids=mapping, gids=mapping)
    return pb.NamespaceOption(pid=pb.CONTAINER, userns_options=users)


def _pod_config(caller: Caller) -> pb.PodSandboxConfig:
    config = caller.pod_config()
    config.linux.security_context.namespace_options.CopyFrom(user_namespace_options())
    return config


async def _container(
    caller: Caller, sandbox: str, *command: str, name: str = "main", **fields: Any
) -> str:
    config = pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name=name),
        image=pb.ImageSpec(image="moorage.local/busybox:1"),
        command=command,
        log_path=f"{name}.log",
        **fields,
        linux=pb.LinuxContainerConfig(
            security_context=pb.LinuxContainerSecurityContext(
                namespace_options=user_namespace_options()
            )
        ),
    )
    request = pb.CreateContainerRequest(pod_sandbox_id=sandbox, config=config)
    container = (await caller.cri.call(caller.cri.runtime.CreateContainer, request)).container_id
    await caller.start(container)
    return container


async def test_root_of_the_pod_is_another_user_outside_and_owns_what_it_should(
    caller: Caller, mapped: str
) -> None:
    pod = await caller.run_sandbox(_pod_config(caller), mapped)
    main = await _container(caller, pod, "sleep", "1000")
    seen = await caller.exec(main, *shell("cat /proc/self/uid_map; id -u; touch /mine /dev/shm/x"))
    assert seen.exit_code == 0, seen.stderr
    assert seen.stdout.split() == [b"0", str(FIRST).encode(), str(COUNT).encode(), b"0"]
    owners = (await caller.exec(main, "stat", "-c", "%u", "/mine", "/bin/sh", "/dev/shm")).stdout
    assert owners.split() == [b"0"] * 3
    assert (await caller.pod_status(pod)).network.ip


async def test_a_runtime_that_gives_its_streams_away_never_has_the_hosts_devices(
    caller: Caller, engine: RunningEngine, mapped: str
) -> None:
    pod = await caller.run_sandbox(_pod_config(caller), mapped)
    plain = await _container(caller, pod, *shell("cat; echo out"), name="plain")
    terminal = await _container(caller, pod, *shell("echo out"), name="terminal", tty=True)
    for container in (plain, terminal):
        assert (await caller.ended(container)).exit_code == 0
        assert [line.strip() for line in await caller.log_of(container)] == ["out"]
    # crun gives the streams of `create` to root of the user namespace.
    assert not (engine.root / "bin" / "mapped.devices").exists()


async def test_a_handler_without_user_namespaces_refuses_such_a_pod(caller: Caller) -> None:
    with pytest.raises(CriError, match="does not support user namespaces") as raised:
        await caller.run_sandbox(_pod_config(caller), "runc")
    assert raised.value.code is grpc.StatusCode.INVALID_ARGUMENT
