"""What is made of the events that shims report."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from google.protobuf.any_pb2 import Any

from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.adapters.shim import keeper as events
from moorage.engine.handlers.adapters.shim.keeper import ShimEvents
from moorage.engine.handlers.adapters.ttrpc import REQUEST, RESPONSE, Frame


class Transport:
    """A connection in memory."""

    def __init__(self) -> None:
        self.sent = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        self.is_closed = True


def event(topic: str = "/tasks/oom", task_id: str = "t1") -> bytes:
    value = pb.OutOfMemory(container_id=task_id).SerializeToString()
    envelope = pb.Envelope(topic=topic, event=Any(value=value))
    payload = pb.ForwardRequest(envelope=envelope).SerializeToString()
    return pb.Request(payload=payload).SerializeToString()


def reported() -> tuple[events._Reported, Transport, list[str], set[object]]:
    tasks: list[str] = []
    connections: set[object] = set()
    made = events._Reported(tasks.append, connections)  # type: ignore[arg-type]
    return made, Transport(), tasks, connections


@pytest.mark.parametrize(
    ("content", "tasks"),
    [
        (event(), ["t1"]),
        (event(topic="/tasks/exit"), []),
        (event(task_id=""), []),
        (b"\xff\xff", []),
        (pb.Request(payload=b"\xff\xff").SerializeToString(), []),
    ],
)
def test_out_of_memory_is_reported_and_every_event_is_answered(
    content: bytes, tasks: list[str]
) -> None:
    connection, transport, oom_tasks, _ = reported()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.data_received(Frame(5, REQUEST, content).encode())
    assert oom_tasks == tasks
    assert transport.sent == Frame(5, RESPONSE, b"").encode()
    assert not transport.is_closed


def test_frames_other_than_requests_are_not_answered() -> None:
    connection, transport, oom_tasks, _ = reported()
    connection.data_received(Frame(1, REQUEST, event()).encode())
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.data_received(
        Frame(1, RESPONSE, event()).encode() + Frame(3, REQUEST, event(task_id="t2")).encode()
    )
    assert oom_tasks == ["t2"]
    assert transport.sent == Frame(3, RESPONSE, b"").encode()


def test_connection_with_invalid_data_is_closed() -> None:
    connection, transport, oom_tasks, _ = reported()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.data_received(b"\xff" * 10)
    assert (oom_tasks, transport.sent, transport.is_closed) == ([], b"", True)


def test_a_connection_is_known_while_it_lasts() -> None:
    connection, transport, _, connections = reported()
    connection.connection_lost(None)
    connection.connection_made(transport)  # type: ignore[arg-type]
    assert connections == {transport}
    connection.connection_lost(OSError())
    assert connections == set()


async def test_the_socket_is_this_users_alone_and_takes_a_files_place(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_text("old")
    tasks: list[str] = []
    events = await ShimEvents.listen(path, tasks.append)
    assert path.stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX) as shim:
        shim.connect(str(path))
        await events.close()
        assert path.exists()
    with socket.socket(socket.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
        late.connect(str(path))
