"""Entering namespaces that exist: for the time of one call, in a thread of its own.

A thread's namespaces are its alone and go with it. A socket belongs for good to the network
namespace its maker was in, so whoever holds it can connect it from any thread.
Source: namespaces(7), setns(2), network_namespaces(7).
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
    """The kernel did not let us into a namespace; the text says into which."""


async def in_namespace(file: Path, kind: int, work: Callable[[], T]) -> T:
    """What `work` gives when it is called in the namespace of that file; `kind` is `NETWORK`.

    `work` must be short: it cannot be cancelled, and its result is dropped when the caller is.
    Raises EnterError, and what `work` raises.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if result.done():
            # The caller has been cancelled.
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
    """A TCP socket connected to a literal address as seen in a network namespace.

    None is our own namespace. IPv6 when the address is. Raises OSError (EnterError, refused).
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET

    def make() -> socket.socket:
        made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        made.setblocking(False)
        return made

    made = make() if file is None else await in_namespace(file, NETWORK, make)
    try:
        await asyncio.get_running_loop().sock_connect(made, (host, port))
    except BaseException:
        made.close()
        raise
    return made


def enter(file: Path, kind: int) -> None:
    """Put the calling thread into the namespace of a file, for the rest of its life.

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
