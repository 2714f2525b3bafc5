"""Sockets made in another network namespace than ours."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.linux.namespaces import NETWORK, EnterError, connected_socket, in_namespace
from tests.descriptors import open_descriptors

# It answers on a port of its own namespace until its input ends.
_SERVER = """
import fcntl, socket, struct, sys
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(control, 0x8914, struct.pack("16sh14x", b"lo", 1))
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
client, _ = server.accept()
client.sendall(b"inside")
client.close()
sys.stdin.read()
"""


@pytest.fixture
def pod() -> Iterator[tuple[Path, int]]:
    """A network namespace and a port that a server in it listens on."""
    if os.geteuid() != 0:
        pytest.skip("making a network namespace needs root")
    argv = ["unshare", "--net", "python3", "-c", _SERVER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            port = int(child.stdout.readline())
            yield Path(f"/proc/{child.pid}/ns/net"), port
        finally:
            child.kill()


async def test_a_socket_reaches_what_listens_in_the_namespace_alone(pod: tuple[Path, int]) -> None:
    namespace, port = pod
    with pytest.raises(ConnectionRefusedError):
        await connected_socket(None, "127.0.0.1", port)
    made = await connected_socket(namespace, "127.0.0.1", port)
    with made:
        assert await asyncio.get_running_loop().sock_recv(made, 10) == b"inside"


async def test_connection_without_listener_is_refused(pod: tuple[Path, int]) -> None:
    for host in ("127.0.0.1", "::1"):
        with pytest.raises(OSError, match=r"refused|Cannot assign|Connect call failed"):
            await connected_socket(pod[0], host, 1)


async def test_the_callers_own_namespace_stays_as_it_is(pod: tuple[Path, int]) -> None:
    before = os.readlink("/proc/thread-self/ns/net")
    inside = await in_namespace(pod[0], NETWORK, lambda: os.readlink("/proc/thread-self/ns/net"))
    assert inside == os.readlink(pod[0]) != before
    assert os.readlink("/proc/thread-self/ns/net") == before
    assert await asyncio.to_thread(os.readlink, "/proc/thread-self/ns/net") == before


@pytest.mark.parametrize(("name", "number"), [("absent", errno.ENOENT), ("plain", errno.EINVAL)])
async def test_invalid_namespace_is_reported_with_its_path(
    tmp_path: Path, name: str, number: int
) -> None:
    (tmp_path / "plain").touch()
    before = open_descriptors()
    with pytest.raises(EnterError, match=name) as caught:
        await connected_socket(tmp_path / name, "127.0.0.1", 80)
    assert caught.value.errno == number
    assert os.strerror(number) in str(caught.value)
    assert open_descriptors() == before


async def test_a_refused_socket_is_closed() -> None:
    with socket.socket() as taken:
        # Bound, and nothing listens there.
        taken.bind(("127.0.0.1", 0))
        before = open_descriptors()
        with pytest.raises(ConnectionRefusedError) as caught:
            await connected_socket(None, *taken.getsockname())
        # The traceback still holds the socket.
        assert caught.tb is not None
        assert open_descriptors() == before


async def test_a_socket_of_our_own_namespace_is_connected_over_either_family() -> None:
    for host in ("127.0.0.1", "::1"):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            server = socket.create_server((host, 0), family=family)
        except OSError:
            assert host == "::1"
            continue
        with server, await connected_socket(None, *server.getsockname()[:2]) as made:
            assert made.family == family
            assert not made.getblocking()
            assert made.getpeername() == server.getsockname()


async def test_threads_do_not_stay(pod: tuple[Path, int]) -> None:
    await in_namespace(pod[0], NETWORK, lambda: None)
    for thread in threading.enumerate():
        if thread.name == "namespace":
            await asyncio.to_thread(thread.join, 5)
            assert not thread.is_alive()
