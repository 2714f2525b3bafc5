from __future__ import annotations

from typing import Any

import pytest

from moorage.engine.errors import EngineError, InvalidError, PreconditionError
from moorage.engine.oci import HandlerTraits, user_namespace, verify_sandbox_namespaces
from moorage.engine.oci.namespaces import container_namespaces, sandbox_namespaces
from moorage.wire.cri import pb
from tests.engine.oci.requests import ABLE, HANDLER, HOST, V2_HOST, container, pod, request, sandbox

NODE = pb.NODE
USERNS = pb.UserNamespace(
    mode=pb.POD,
    uids=[pb.IDMapping(host_id=65536, container_id=0, length=65536)],
    gids=[pb.IDMapping(host_id=131072, container_id=0, length=65536)],
)


def options(**fields: Any) -> pb.NamespaceOption:
    return pb.NamespaceOption(**{"pid": pb.CONTAINER, **fields})


def namespaces(
    asked: pb.NamespaceOption,
    pods: pb.NamespaceOption | None = None,
    *,
    host: Any = HOST,
    handler: HandlerTraits = HANDLER,
    target_pid: int | None = None,
    privileged: bool = False,
    **changed: Any,
) -> dict[str, str]:
    """Type → path of a container's namespaces."""
    config = container(security={"namespace_options": asked, "privileged": privileged})
    context = sandbox(pod(namespace_options=pods or asked), **changed)
    asked_for = request(config, sandbox=context, handler=handler, target_pid=target_pid)
    return {
        namespace["type"]: namespace.get("path", "")
        for namespace in container_namespaces(asked_for, host)
    }


PINNED = {"network": "/run/pins/net", "uts": "/run/pins/uts", "ipc": "/run/pins/ipc"}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (options(), {"mount": "", "pid": "", **PINNED}),
        (options(pid=NODE), {"mount": "", **PINNED}),
        (options(pid=pb.POD), {"mount": "", "pid": "/proc/42/ns/pid", **PINNED}),
        (options(pid=pb.TARGET), {"mount": "", "pid": "/proc/77/ns/pid", **PINNED}),
        (options(network=NODE), {"mount": "", "pid": "", "ipc": "/run/pins/ipc"}),
        (options(ipc=NODE), {"mount": "", "pid": "", "network": "/run/pins/net",
                             "uts": "/run/pins/uts"}),
        (options(network=NODE, ipc=NODE, pid=NODE), {"mount": ""}),
    ],
)  # fmt: skip
def test_modes(asked: pb.NamespaceOption, expected: dict[str, str]) -> None:
    assert namespaces(asked, infra_pid=42, target_pid=77) == expected


def test_what_a_container_leaves_unsaid_is_its_pods() -> None:
    of_host = options(network=NODE, ipc=NODE, pid=NODE)
    assert namespaces(pb.NamespaceOption(), of_host) == {"mount": ""}
    assert namespaces(options(), of_host) == {"mount": "", "pid": ""}
    assert namespaces(pb.NamespaceOption(), options()) == {"mount": "", "pid": "", **PINNED}


def test_what_is_not_pinned_is_the_holders() -> None:
    by_type = namespaces(options(), netns="", ipcns="", utsns="", infra_pid=9)
    assert by_type["network"] == "/proc/9/ns/net"
    assert (by_type["ipc"], by_type["uts"]) == ("/proc/9/ns/ipc", "/proc/9/ns/uts")


def test_a_sandbox_without_its_namespaces_cannot_be_joined() -> None:
    with pytest.raises(PreconditionError, match="has no network namespace any more"):
        namespaces(options(), netns="")
    with pytest.raises(PreconditionError, match="has no pid namespace any more"):
        namespaces(options(pid=pb.POD))


def test_a_virtualised_pod_needs_no_pins_but_the_network() -> None:
    kata = HandlerTraits(name="kata", is_virtualised=True)
    by_type = namespaces(options(pid=pb.POD), handler=kata, ipcns="", utsns="")
    assert (by_type["ipc"], by_type["uts"], by_type["pid"]) == ("", "", "")
    with pytest.raises(PreconditionError, match="network"):
        namespaces(options(), handler=kata, netns="")


def test_gvisor_shares_a_pods_processes_with_what_names_no_namespace() -> None:
    gvisor = HandlerTraits(name="gvisor", is_virtualised=True, has_processes_joined_unsaid=True)
    assert "pid" not in namespaces(options(pid=pb.POD), handler=gvisor, infra_pid=7)
    assert namespaces(options(pid=pb.CONTAINER), handler=gvisor)["pid"] == ""


@pytest.mark.parametrize(("privileged", "expected"), [(False, True), (True, False)])
def test_a_cgroup_namespace_is_for_version_two_and_the_unprivileged(
    privileged: bool, expected: bool
) -> None:
    assert ("cgroup" in namespaces(options(), host=V2_HOST, privileged=privileged)) is expected
    assert "cgroup" not in namespaces(options(), host=HOST, privileged=privileged)


@pytest.mark.parametrize(
    ("asked", "pods", "text"),
    [
        (options(network=pb.CONTAINER), None, "namespace_options.network CONTAINER"),
        (options(network=pb.TARGET), None, "namespace_options.network TARGET"),
        (options(ipc=pb.CONTAINER), None, "namespace_options.ipc CONTAINER"),
        (options(ipc=pb.TARGET), None, "namespace_options.ipc TARGET"),
        (options(pid=pb.TARGET, target_id="abc"), None, "'abc' is not a running container"),
        (options(network=NODE), options(), "network of the container is NODE"),
        (options(ipc=NODE), options(), "ipc of the container is NODE"),
        (options(pid=NODE), options(), "pid of the container is NODE"),
        (options(userns_options=USERNS), options(), "userns_options of the container differs"),
        (options(), options(userns_options=USERNS), "userns_options of the container differs"),
    ],
)
def test_invalid_namespace_options_are_rejected(
    asked: pb.NamespaceOption, pods: pb.NamespaceOption | None, text: str
) -> None:
    with pytest.raises(EngineError, match=text):
        namespaces(asked, pods, handler=ABLE)


def mapped(*ranges: tuple[int, int, int], mode: int = pb.POD) -> pb.NamespaceOption:
    """With the same ranges (container, host, length) for users and groups."""
    ids = [pb.IDMapping(container_id=a, host_id=b, length=c) for a, b, c in ranges]
    return options(
        userns_options=pb.UserNamespace(mode=mode, uids=ids, gids=ids)  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (mapped((0, 1000, 10), mode=pb.CONTAINER), "mode CONTAINER is not supported"),
        (mapped((0, 1000, 10), mode=pb.TARGET), "mode TARGET is not supported"),
        (mapped((0, 1000, 10), mode=pb.NODE), "mode NODE has id mappings"),
        (mapped(), "0 ranges; exactly one"),
        (mapped((0, 1000, 10), (10, 2000, 10)), "2 ranges; exactly one"),
        (mapped((1, 1000, 10)), "does not map container id 0"),
        (mapped((0, 1000, 0)), "does not map container id 0"),
        (mapped((0, 2**32 - 5, 10)), "exceeds the id space"),
    ],
)
def test_invalid_user_namespaces_are_rejected(asked: pb.NamespaceOption, text: str) -> None:
    with pytest.raises(InvalidError, match=text):
        user_namespace(asked, ABLE)


def test_a_user_namespace_is_the_pods() -> None:
    asked = options(userns_options=USERNS)
    mappings = user_namespace(asked, ABLE)
    assert mappings is not None
    assert mappings.uids == {"containerID": 0, "hostID": 65536, "size": 65536}
    assert mappings.gids["hostID"] == 131072
    assert namespaces(asked, handler=ABLE, userns="/run/pins/user")["user"] == "/run/pins/user"


def test_a_handler_that_cannot_says_so() -> None:
    with pytest.raises(InvalidError, match="'crun' does not support user namespaces"):
        user_namespace(options(userns_options=USERNS), HANDLER)


@pytest.mark.parametrize(
    "asked", [options(), options(userns_options=pb.UserNamespace(mode=pb.NODE))]
)
def test_without_one_the_pod_has_the_hosts_users(asked: pb.NamespaceOption) -> None:
    assert user_namespace(asked, HANDLER) is None


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (options(pid=pb.POD), {"mount": "", "pid": "", **PINNED}),
        (options(pid=NODE), {"mount": "", **PINNED}),
        (options(network=NODE, ipc=NODE), {"mount": "", "pid": ""}),
        (options(userns_options=USERNS), {"mount": "", "pid": "", "user": "", **PINNED}),
    ],
)
def test_a_holder_joins_what_is_pinned(asked: pb.NamespaceOption, expected: dict[str, str]) -> None:
    context = sandbox(pod(namespace_options=asked))
    by_type = {
        namespace["type"]: namespace.get("path", "")
        for namespace in sandbox_namespaces(context, HOST)
    }
    assert by_type == expected


def test_no_pod_joins_a_containers_processes() -> None:
    with pytest.raises(InvalidError, match="TARGET is for containers"):
        verify_sandbox_namespaces(options(pid=pb.TARGET), HANDLER)


def test_user_namespace_needs_a_network_or_ipc_namespace() -> None:
    on_host = options(network=NODE, ipc=NODE, userns_options=USERNS)
    with pytest.raises(InvalidError, match="cannot have both the host's network and its IPC"):
        verify_sandbox_namespaces(on_host, ABLE)
    for fields in ({"network": NODE}, {"ipc": NODE}, {}):
        verify_sandbox_namespaces(options(**fields, userns_options=USERNS), ABLE)
    verify_sandbox_namespaces(options(network=NODE, ipc=NODE), ABLE)
