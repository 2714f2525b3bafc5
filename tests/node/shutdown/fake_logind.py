"""A fake systemd-logind on a private bus: the calls, property, signal and locks that are used.

The bus is the real dbus-daemon and the callers are systemd's real programs; this service alone is a
stand-in. It also answers systemd's KillUnit, by reading its drop-in files again.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CALL, RETURN, ERROR, SIGNAL = 1, 2, 3, 4
PATH, INTERFACE, MEMBER, ERROR_NAME, REPLY_TO, DESTINATION, SENDER, TYPES, FDS = range(1, 10)
KINDS = {PATH: "o", REPLY_TO: "u", TYPES: "g", FDS: "u"}
CONFIGURATION = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path={path}</listen><policy context="default">
<allow user="*"/><allow own="*"/><allow send_type="method_call"/>
<allow send_destination="*" eavesdrop="true"/><allow receive_sender="*"/></policy></busconfig>"""
PROGRAMS = ("dbus-daemon", "busctl", "systemd-inhibit")
IS_MISSING = not all(map(shutil.which, PROGRAMS))


@dataclass
class Message:
    type: int
    serial: int
    fields: dict[int, Any]
    body: bytes

    def texts(self, count: int) -> list[str]:
        at, found = 0, []
        for _ in range(count):
            at += -at % 4
            (size,) = struct.unpack_from("<I", self.body, at)
            found.append(self.body[at + 4 : at + 4 + size].decode())
            at += 4 + size + 1
        return found


def packed(kind: str, value: Any) -> bytes:
    if kind == "u":
        return struct.pack("<I", value)
    data: bytes = value.encode() + b"\0"
    return struct.pack("<B" if kind == "g" else "<I", len(data) - 1) + data


def aligned(data: bytes, to: int) -> bytes:
    return data + b"\0" * (-len(data) % to)


def message(kind: int, serial: int, fields: dict[int, Any], body: bytes = b"") -> bytes:
    """Return a message of the D-Bus protocol, little-endian."""
    header = b""
    for code, value in fields.items():
        of = KINDS.get(code, "s")
        header = (
            aligned(aligned(header, 8) + bytes([code]) + packed("g", of), 4)
            if (of != "g")
            else aligned(header, 8) + bytes([code]) + packed("g", of)
        )
        header += packed(of, value)
    start = struct.pack("<BBBBIII", ord("l"), kind, 0, 1, len(body), serial, len(header))
    return aligned(start + header, 8) + body


class FakeLogind:
    """Counts the locks it has given and that are held, and announces what the test says."""

    def __init__(self, connection: socket.socket, drop_ins: Path) -> None:
        self.delay_us = 5_000_000
        self.is_shutting_down = False
        self.asked: list[list[str]] = []
        self.reloads = 0
        self.does_reload = True
        self.held: set[int] = set()
        self._connection, self._drop_ins = connection, drop_ins
        self._serial = 0
        self._changed = asyncio.Condition()

    async def announce(self, is_begun: bool) -> None:
        """Send PrepareForShutdown."""
        self.is_shutting_down = is_begun
        fields = {PATH: "/org/freedesktop/login1", INTERFACE: "org.freedesktop.login1.Manager",
                  MEMBER: "PrepareForShutdown", TYPES: "b"}  # fmt: skip
        await self._send(SIGNAL, fields, struct.pack("<I", is_begun))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20), self._changed:
            await self._changed.wait_for(condition)

    async def serve(self) -> None:
        while True:
            request = await self._receive()
            if request.type == CALL:
                await self._answer(request)
                async with self._changed:
                    self._changed.notify_all()

    async def begin(self) -> None:
        loop = asyncio.get_running_loop()
        uid = str(os.getuid()).encode().hex()
        for line in (f"\0AUTH EXTERNAL {uid}", "NEGOTIATE_UNIX_FD"):
            await loop.sock_sendall(self._connection, f"{line}\r\n".encode())
            await loop.sock_recv(self._connection, 200)
        await loop.sock_sendall(self._connection, b"BEGIN\r\n")
        await self._call_bus("Hello")
        for name in ("org.freedesktop.login1", "org.freedesktop.systemd1"):
            await self._call_bus("RequestName", "su", aligned(packed("s", name), 4) + bytes(4))

    async def _call_bus(self, member: str, types: str = "", body: bytes = b"") -> None:
        name = "org.freedesktop.DBus"
        fields = {PATH: "/org/freedesktop/DBus", INTERFACE: name, MEMBER: member, DESTINATION: name}
        await self._send(CALL, {**fields, **({TYPES: types} if types else {})}, body)
        answer = await self._receive()
        while answer.type == SIGNAL:
            answer = await self._receive()
        assert answer.type == RETURN, answer

    async def _answer(self, request: Message) -> None:
        to = {REPLY_TO: request.serial, DESTINATION: request.fields[SENDER]}
        match request.fields[MEMBER]:
            case "Get" if request.texts(2)[1] == "InhibitDelayMaxUSec":
                body = aligned(packed("g", "t"), 8) + struct.pack("<Q", self.delay_us)
                await self._send(RETURN, {**to, TYPES: "v"}, body)
            case "Inhibit" if not self.is_shutting_down:
                self.asked.append(request.texts(4))
                await self._give_lock(to)
            case "KillUnit":
                self.reloads += 1
                if self.does_reload:
                    self._read_drop_ins()
                await self._send(RETURN, to)
            case _:
                name = "org.freedesktop.login1.OperationInProgress"
                text = packed("s", "the operation is already running")
                await self._send(ERROR, {**to, ERROR_NAME: name, TYPES: "s"}, text)

    def _read_drop_ins(self) -> None:
        for file in sorted(self._drop_ins.glob("*.conf")):
            found = re.search(r"\[Login\]\nInhibitDelayMaxSec=(\d+)\n", file.read_text())
            if found is not None:
                self.delay_us = int(found[1]) * 1_000_000

    async def _give_lock(self, to: dict[int, Any]) -> None:
        """Answer with the one write end of a pipe: it is closed when the lock is given back."""
        read, write = os.pipe()
        self.held.add(read)
        asyncio.get_running_loop().add_reader(read, self._released, read)
        await self._send(RETURN, {**to, TYPES: "h", FDS: 1}, struct.pack("<I", 0), [write])
        os.close(write)

    def _released(self, read: int) -> None:
        asyncio.get_running_loop().remove_reader(read)
        os.close(read)
        self.held.discard(read)
        self._task = asyncio.ensure_future(self._announce_change())

    async def _announce_change(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _send(
        self, kind: int, fields: dict[int, Any], body: bytes = b"", fds: list[int] | None = None
    ) -> None:
        self._serial += 1
        data = message(kind, self._serial, fields, body)
        if fds:
            socket.send_fds(self._connection, [data], fds)
        else:
            await asyncio.get_running_loop().sock_sendall(self._connection, data)

    async def _receive(self) -> Message:
        start = await self._read(16)
        kind = start[1]
        size, serial, length = struct.unpack_from("<III", start, 4)
        rest = await self._read(length + -length % 8 + size)
        fields: dict[int, Any] = {}
        at = 0
        while at < length:
            at += -at % 8
            code, of = rest[at], chr(rest[at + 2])
            at += 4
            if of == "u":
                (fields[code],) = struct.unpack_from("<I", rest, at)
                at += 4
                continue
            width = 1 if of == "g" else 4
            count = int.from_bytes(rest[at : at + width], "little")
            fields[code] = rest[at + width : at + width + count].decode()
            at += width + count + 1
        return Message(kind, serial, fields, rest[len(rest) - size :])

    async def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = await asyncio.get_running_loop().sock_recv(self._connection, size - len(data))
            if not more:
                raise EOFError("the bus has closed the connection")
            data += more
        return data


@asynccontextmanager
async def bus(directory: Path) -> AsyncIterator[Path]:
    """Run a private bus; gives its socket."""
    path, configuration = directory / "bus", directory / "bus.conf"
    configuration.write_text(CONFIGURATION.format(path=path))
    process = await asyncio.create_subprocess_exec(
        "dbus-daemon", f"--config-file={configuration}", "--nofork", "--print-address",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 20)
        yield path
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def logind_on(path: Path, drop_ins: Path) -> AsyncIterator[FakeLogind]:
    """Run the service on a bus."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.setblocking(False)
        fake = FakeLogind(connection, drop_ins)
        await fake.begin()
        serving = asyncio.ensure_future(fake.serve())
        try:
            yield fake
        finally:
            serving.cancel()
            await asyncio.wait({serving})
            for read in list(fake.held):
                asyncio.get_running_loop().remove_reader(read)
                os.close(read)
