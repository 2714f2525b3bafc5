"""Entering existing namespaces for one call, in a thread of its own.

A thread's namespaces are its own and end with it. A socket belongs to the network namespace in
which it was created, so any thread can connect it. Source: namespaces(7), setns(2),
network_namespaces(7).
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from moorage.linux import libc

NETWORK = libc.CLONE_NEWNET

T = TypeVar("T")


class EnterError(OSError):
    """A namespace could not be entered; the text names it."""


async def in_namespace(file: Path, kind: int, work: Callable[[], T]) -> T:
    """Call `work` in the namespace of a file; `kind` is `NETWORK`. Returns its result.

    `work` must be short: it cannot be cancelled, and its result is dropped if the caller is. Raises
    EnterError, and what `work` raises.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if result.done():
            # The caller was cancelled.
            if isinstance(value, socket.socket):
                value.close()
        elif error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        try:
            enter(file, kind)
            value = work()
        except BaseException as error:  # handed to the caller
            loop.call_soon_threadsafe(settle, None, error)
        else:
            loop.call_soon_threadsafe(settle, value, None)

    threading.Thread(target=run, name="namespace", daemon=True).start()
    return await result


async def connected_socket(file: Path | None, host: str, port: int) -> socket.socket:
    """Connect a TCP socket to a literal address, IPv4 or IPv6, in a network namespace.

    `file` None is this process's own namespace. Raises OSError (EnterError, refused).
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET

    def make() -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        sock.setblocking(False)
        return sock

    connection = make() if file is None else await in_namespace(file, NETWORK, make)
    try:
        await asyncio.get_running_loop().sock_connect(connection, (host, port))
    except BaseException:
        connection.close()
        raise
    return connection


def enter(file: Path, kind: int) -> None:
    """Move the calling thread into the namespace of a file, for the rest of its life.

    Raises EnterError.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError as error:
        raise EnterError(error.errno, f"the namespace {file}: {error.strerror}") from error
    try:
        libc.setns(descriptor, kind)
    except OSError as error:
        raise EnterError(error.errno, f"entering the namespace {file}: {error.strerror}") from error
    finally:
        os.close(descriptor)
