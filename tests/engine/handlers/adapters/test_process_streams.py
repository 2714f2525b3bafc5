"""The streams of a process that we started: pipes, a terminal, and how a terminal is got."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import socket
import struct
import termios
from pathlib import Path

import pytest

from moorage.engine.handlers.adapters import STDERR, STDOUT
from moorage.engine.handlers.adapters.process_streams import ConsoleSocket, Pipes, Terminal
from tests.descriptors import descriptors, opened_since


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


async def test_output_comes_with_its_descriptor_until_both_have_ended() -> None:
    before = descriptors()
    pipes, ends = Pipes.make(has_stdin=True)
    os.write(ends.stdout, b"out")
    assert await pipes.read() == (STDOUT, b"out")
    os.write(ends.stderr, b"err")
    assert await pipes.read() == (STDERR, b"err")
    await pipes.write(b"in")
    assert os.read(ends.stdin, 10) == b"in"
    await pipes.end_input()
    await pipes.end_input()
    assert os.read(ends.stdin, 10) == b""
    ends.close()
    assert await pipes.read() is None
    assert await pipes.read() is None
    assert not opened_since(before)
    pipes.close()


async def test_without_input_none_can_be_given() -> None:
    pipes, ends = Pipes.make(has_stdin=False)
    assert os.read(ends.stdin, 10) == b""
    with pytest.raises(BrokenPipeError, match="the process has no input") as failed:
        await pipes.write(b"x")
    assert failed.value.errno == errno.EPIPE
    await pipes.end_input()
    ends.close()
    pipes.close()


async def test_closing_gives_every_descriptor_back() -> None:
    before = descriptors()
    pipes, ends = Pipes.make(has_stdin=True)
    child = [ends.stdin, ends.stdout, ends.stderr]
    own = opened_since(before).keys() - set(child)
    assert len(own) == 3
    assert not any(os.get_blocking(descriptor) for descriptor in own)
    pipes.close()
    pipes.close()
    assert not any(is_open(descriptor) for descriptor in own)
    assert all(is_open(descriptor) for descriptor in child)
    ends.close()
    assert not any(is_open(descriptor) for descriptor in child)
    assert await pipes.read() is None


async def test_more_than_a_pipe_holds_is_written_as_it_is_read() -> None:
    before = descriptors()
    pipes, ends = Pipes.make(has_stdin=True)
    opened = opened_since(before)
    data = bytes(range(256)) * 1024
    writing = asyncio.ensure_future(pipes.write(data))
    os.set_blocking(ends.stdin, False)
    result = b""
    while len(result) < len(data):
        await asyncio.sleep(0)
        with contextlib.suppress(BlockingIOError):
            result += os.read(ends.stdin, 1 << 20)
    await writing
    assert result == data
    # The loop no longer waits for the pipe.
    loop = asyncio.get_running_loop()
    assert not any(loop.remove_writer(descriptor) for descriptor in opened)
    pipes.close()
    ends.close()


async def test_a_terminal_ends_when_its_last_user_has_gone() -> None:
    control, user = os.openpty()
    terminal = Terminal(control)
    os.write(user, b"hello")
    assert await terminal.read() == (STDOUT, b"hello")
    await terminal.write(b"typed\n")
    assert os.read(user, 10) == b"typed\n"
    await terminal.resize(80, 24)
    size = fcntl.ioctl(user, termios.TIOCGWINSZ, bytes(8))
    assert struct.unpack("HHHH", size) == (24, 80, 0, 0)
    await terminal.resize(0x1_0050, 0x1_0018)
    size = fcntl.ioctl(user, termios.TIOCGWINSZ, bytes(8))
    assert struct.unpack("HHHH", size) == (24, 80, 0, 0)
    await terminal.end_input()
    # What was typed is echoed first.
    assert await terminal.read() == (STDOUT, b"typed\r\n")
    os.close(user)
    assert await terminal.read() is None
    terminal.close()
    terminal.close()
    assert not is_open(control)
    assert await terminal.read() is None


async def test_another_error_of_a_terminal_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    control, user = os.openpty()
    terminal = Terminal(control)
    os.write(user, b"x")

    def read(_descriptor: int, _count: int) -> bytes:
        raise OSError(errno.ENOMEM, "no memory")

    with monkeypatch.context() as patched:
        patched.setattr(os, "read", read)
        with pytest.raises(OSError, match="no memory"):
            await terminal.read()
    terminal.close()
    os.close(user)


async def test_a_terminal_is_handed_over_once(tmp_path: Path) -> None:
    control, user = os.openpty()
    before = descriptors()
    async with ConsoleSocket(tmp_path / "c.sock") as console:
        with socket.socket(socket.AF_UNIX) as runtime:
            runtime.connect(str(console.path))
            socket.send_fds(runtime, [b"/dev/pts/7"], [control])
            terminal = await console.receive()
    assert not (tmp_path / "c.sock").exists()
    (descriptor,) = opened_since(before)
    assert not os.get_inheritable(descriptor)
    os.write(user, b"x")
    assert await terminal.read() == (STDOUT, b"x")
    terminal.close()
    os.close(control)
    os.close(user)


async def test_a_runtime_that_hands_over_nothing(
    tmp_path: Path,
) -> None:
    async with ConsoleSocket(tmp_path / "c.sock") as console:
        with socket.socket(socket.AF_UNIX) as runtime:
            runtime.connect(str(console.path))
            runtime.send(b"no terminal")
            with pytest.raises(OSError, match="handed over no terminal") as failed:
                await console.receive()
        assert failed.value.errno == errno.EPROTO
        with pytest.raises(TimeoutError):
            await console.receive(0.01)


async def test_failed_console_socket_is_closed(tmp_path: Path) -> None:
    before = descriptors()
    console = ConsoleSocket(tmp_path / "none" / "c.sock")
    with pytest.raises(FileNotFoundError):
        await console.__aenter__()
    assert not opened_since(before)
