"""Server of `moor` commands: each is a fork of a process that has imported the command line.

Importing it takes 0.2 to 0.7 s of processor time, and tests start hundreds of commands. A fork runs
what the program runs, with the arguments, directory, environment and standard streams that it is
given, and ends as the program ends. Tests of the process itself start `MOOR`.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any

_SIZE = struct.Struct("!I")
_STATUS = struct.Struct("!i")
_STREAMS = 3


def run_moor(*arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a `moor` command to its end, and until no process has its standard output or error.

    Raises TimeoutExpired after `timeout_s`; the command is killed then.
    """
    deadline = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(_address())
        pipes = [os.pipe(), os.pipe()]
        try:
            request = {"argv": arguments, "cwd": os.getcwd(), "environment": dict(os.environ)}
            body = json.dumps(request).encode()
            socket.send_fds(
                connection, [_SIZE.pack(len(body))], [0, *(writing for _, writing in pipes)]
            )
            connection.sendall(body)
        finally:
            for _, writing in pipes:
                os.close(writing)
        outputs = _read_all([reading for reading, _ in pipes], deadline)
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            answer = b"" if outputs is None else connection.recv(_STATUS.size)
        except TimeoutError:
            outputs = None
    if outputs is None:
        raise subprocess.TimeoutExpired(["moor", *arguments], timeout_s)
    stdout, stderr = (output.decode() for output in outputs)
    (status,) = _STATUS.unpack(answer)
    return subprocess.CompletedProcess(["moor", *arguments], status, stdout, stderr)


def _read_all(pipes: Sequence[int], deadline: float) -> list[bytes] | None:
    """Read pipes to their ends and close them. Return None if that is not by the deadline."""
    outputs = [bytearray() for _ in pipes]
    with selectors.DefaultSelector() as selector:
        for pipe, output in zip(pipes, outputs, strict=True):
            selector.register(pipe, selectors.EVENT_READ, output)
        try:
            while selector.get_map():
                ready = selector.select(max(deadline - time.monotonic(), 0))
                if not ready:
                    return None
                for key, _ in ready:
                    part = os.read(key.fd, 1 << 16)
                    if not part:
                        selector.unregister(key.fd)
                    key.data.extend(part)
        finally:
            for pipe in pipes:
                os.close(pipe)
    return [bytes(output) for output in outputs]


_starting = threading.Lock()


def _address() -> str:
    with _starting:
        return _started_server()


@cache
def _started_server() -> str:
    """Start this process's server, which ends with it. Return the address."""
    directory = tempfile.TemporaryDirectory(prefix="moor-server-")
    address = str(Path(directory.name) / "socket")
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.moor_server", address],
        cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert server.stdin is not None
    assert server.stdout is not None

    def stop() -> None:
        server.communicate()
        directory.cleanup()

    atexit.register(stop)
    assert server.stdout.readline() == b"ready\n", "the server of `moor` commands does not start"
    return address


class _Server:
    """Forks a child for each connection, and answers with its exit status.

    A connection that is closed before kills its child. The server ends with its standard input.
    """

    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen()
        self._selector = selectors.DefaultSelector()
        self._selector.register(0, selectors.EVENT_READ, self._end)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._is_ending = False

    def serve(self) -> list[str] | None:
        """Return a command's arguments in its process, and None at the end in the server's."""
        while not self._is_ending:
            for key, _ in self._selector.select():
                act: Callable[[], list[str] | None] = key.data
                arguments = act()
                if arguments is not None:
                    return arguments
        return None

    def _end(self) -> None:
        self._is_ending = True

    def _accept(self) -> list[str] | None:
        connection, _ = self._listener.accept()
        size, streams, _, _ = socket.recv_fds(connection, _SIZE.size, _STREAMS)
        with connection.makefile("rb") as stream:
            request = json.loads(stream.read(*_SIZE.unpack(size)))
        pid = os.fork()
        if pid == 0:
            self._selector.close()
            self._listener.close()
            connection.close()
            _become(request["cwd"], request["environment"], streams)
            return list(request["argv"])
        for stream_fd in streams:
            os.close(stream_fd)
        self._watch(pid, connection)
        return None

    def _watch(self, pid: int, connection: socket.socket) -> None:
        process = os.pidfd_open(pid)

        def end() -> None:
            if connection.fileno() in self._selector.get_map():
                self._selector.unregister(connection)
            self._selector.unregister(process)
            os.close(process)
            _, status = os.waitpid(pid, 0)
            with connection, suppress(BrokenPipeError):
                connection.sendall(_STATUS.pack(os.waitstatus_to_exitcode(status)))

        def kill() -> None:
            # The process may have ended in the same round.
            if connection.fileno() != -1:
                self._selector.unregister(connection)
                signal.pidfd_send_signal(process, signal.SIGKILL)

        self._selector.register(process, selectors.EVENT_READ, end)
        self._selector.register(connection, selectors.EVENT_READ, kill)


def _become(directory: str, environment: dict[str, str], streams: Sequence[int]) -> None:
    """Take a program's directory, environment and standard streams."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.stdin = _text(0, "r", sys.stdin)
    sys.stdout = _text(1, "w", sys.stdout)
    sys.stderr = _text(2, "w", sys.stderr)


def _text(number: int, mode: str, like: Any) -> TextIOWrapper:
    """A standard stream as the interpreter makes it."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    return TextIOWrapper(
        open(number, f"{mode}b", closefd=False),
        encoding=like.encoding, errors=like.errors,
        line_buffering=os.isatty(number) or number == 2, write_through=unbuffered and mode == "w",
    )  # fmt: skip


def _run(main: Callable[[list[str]], Any], arguments: list[str]) -> None:
    """Run a command and exit with its status: without the end of every module, which all share."""
    try:
        main(arguments)
    except SystemExit as ended:
        if not isinstance(ended.code, int):
            raise
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code)


def _main(address: str) -> None:
    # Only here: processes that start the server need none of it.
    from moorage.cli import commands
    from moorage.cli.main import main
    from moorage.cluster.importing import import_program

    for module in pkgutil.iter_modules(commands.__path__, f"{commands.__name__}."):
        import_program(module.name)
    gc.collect()
    gc.freeze()
    server = _Server(address)
    print("ready", flush=True)
    arguments = server.serve()
    if arguments is not None:
        _run(main, arguments)


if __name__ == "__main__":
    _main(sys.argv[1])
