"""Programs of ours in tests: each is a fork of a process that has imported their modules.

Importing them takes 0.2 to 0.9 s of processor time for each program, of which a cluster has six,
and tests start hundreds. A fork runs what `python -m MODULE` runs, with the arguments, directory,
environment and descriptors that it is given, and ends as that ends. Tests of the program itself
start `MOOR`, or another command line.

    a test, `moor` → the server → a fork: `moor`, a supervisor, an engine …
                                  a supervisor → a fork of it: each of its parts

The server forks before any thread or event loop exists, as do supervisors, which have neither.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

from moorage.cluster.launching import execute, set_launcher

_PYTHON = sys.executable
_SUPERVISOR = "moorage.cluster.supervision.supervise"
_PARTS = ("apiserver", "controllers", "engine", "node")
_PROGRAMS = ("moorage.cluster.parts.__main__", "moorage.cluster.clearing", _SUPERVISOR)
_SIZE = struct.Struct("!I")
_PID = struct.Struct("!i")
_STATUS = struct.Struct("!i")
_STREAMS = 3
_MOST_DESCRIPTORS = 64
# Where descriptors wait, apart from those that a program may be given.
_ASIDE = 512
_LONGEST_COMMAND_LINE = 2048


class Fork(subprocess.Popen[Any]):
    """`python -m MODULE ARGUMENT…` as a `Popen`: a child of the server, which passes its status on.

    Takes MODULE and the arguments, and of the options of `Popen` those for streams, `env`, `cwd`,
    `pass_fds` and `start_new_session`.
    """

    def _execute_child(self, args: Sequence[str], *more: Any) -> None:
        given = dict(zip(_OPTIONS, more, strict=True))
        streams = _streams(given)
        request = {
            "arguments": list(args),
            "cwd": os.fspath(given["cwd"] or os.getcwd()),
            "environment": dict(os.environ if given["env"] is None else given["env"]),
            "numbers": [0, 1, 2, *given["pass_fds"]],
            "is_session": given["start_new_session"],
        }
        body = json.dumps(request).encode()
        self._connection = socket.socket(socket.AF_UNIX)
        try:
            self._connection.connect(_address())
            socket.send_fds(
                self._connection, [_SIZE.pack(len(body))], [*streams, *given["pass_fds"]]
            )
            self._connection.sendall(body)
            answer = self._connection.recv(_PID.size, socket.MSG_WAITALL)
            if len(answer) < _PID.size:
                raise OSError("the server of forks has ended")
            (self.pid,) = _PID.unpack(answer)
        except BaseException:
            self._connection.close()
            raise
        finally:
            _close_own(self, given)
        self._child_created = True

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                self._take_status(os.WNOHANG)
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode

    def _take_status(self, flags: int) -> None:
        if self.returncode is None:
            pid, status = self._try_wait(flags)
            if pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        flags = socket.MSG_DONTWAIT if wait_flags else socket.MSG_WAITALL
        try:
            answer = self._connection.recv(_STATUS.size, flags)
        except BlockingIOError:
            return 0, 0
        self._connection.close()
        # A server that has ended left its children without their status.
        (status,) = _STATUS.unpack(answer) if answer else (signal.SIGKILL,)
        return self.pid, status


class OwnFork(subprocess.Popen[Any]):
    """`python -m MODULE ARGUMENT…` as a `Popen`: a child of this process, which has no thread."""

    def _execute_child(self, args: Sequence[str], *more: Any) -> None:
        given = dict(zip(_OPTIONS, more, strict=True))
        descriptors = [*_streams(given), *given["pass_fds"]]
        environment = dict(os.environ if given["env"] is None else given["env"])
        self.pid = os.fork()
        if self.pid == 0:
            _become_program(
                args,
                directory=given["cwd"] or os.getcwd(),
                environment=environment,
                descriptors=dict(zip((0, 1, 2, *given["pass_fds"]), descriptors, strict=True)),
                is_session=given["start_new_session"],
            )
        self._child_created = True
        _close_own(self, given)


# Of `Popen._execute_child`, behind the command line.
_OPTIONS = (
    "executable", "preexec_fn", "close_fds", "pass_fds", "cwd", "env", "startupinfo",
    "creationflags", "shell", "p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite",
    "restore_signals", "gid", "gids", "uid", "umask", "start_new_session", "process_group",
)  # fmt: skip


def _streams(given: Mapping[str, Any]) -> list[int]:
    pipes = (given["p2cread"], given["c2pwrite"], given["errwrite"])
    return [number if pipe == -1 else pipe for number, pipe in enumerate(pipes)]


def _close_own(process: Any, given: Mapping[str, Any]) -> None:
    """Close this process's copies of the ends of pipes that the child has."""
    names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
    process._close_pipe_fds(*(given[name] for name in names))


def launch(
    argv: Sequence[str],
    *,
    output: Any,
    errors: Any = None,
    environment: Mapping[str, str] | None = None,
    passing: Sequence[int] = (),
    of: type[subprocess.Popen[Any]] = Fork,
) -> subprocess.Popen[bytes]:
    """Start a program as a fork; another interpreter's, or another's program, by its execution."""
    if tuple(argv[:2]) != (_PYTHON, "-m"):
        return execute(argv, output=output, errors=errors, environment=environment, passing=passing)
    return of(
        argv[2:], stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment,
        pass_fds=passing, start_new_session=True,
    )  # fmt: skip


def run(
    module: str, *arguments: str, timeout_s: float, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a module to its end, and until no process has its standard output or error.

    Raises TimeoutExpired after `timeout_s`; the program is killed then.
    """
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    argv = [module, *arguments]
    with Fork(argv, text=True, **options) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(argv, process.wait(), stdout, stderr)


def run_moor(*arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a `moor` command as `run` does."""
    return run("moorage.cli", *arguments, timeout_s=timeout_s)


_MOOR = """#!{python} -IS
import array, json, os, signal, socket, struct, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
body = json.dumps(dict(
    arguments=["moorage.cli", *sys.argv[1:]], cwd=os.getcwd(), environment=dict(os.environ),
    numbers=[0, 1, 2], is_session=False,
)).encode()
server.sendmsg(
    [struct.pack("!I", len(body))],
    [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))],
)
server.sendall(body)
(pid,) = struct.unpack("!i", server.recv(4, socket.MSG_WAITALL))
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(pid, number))
(status,) = struct.unpack("!i", server.recv(4, socket.MSG_WAITALL))
sys.exit(os.waitstatus_to_exitcode(status) % 256)
"""


def write_moor(path: Path) -> None:
    """Write a program for shells that runs `moor` commands as forks, of which it is no parent."""
    path.write_text(_MOOR.format(python=_PYTHON, address=_address()))
    path.chmod(0o755)


_starting = threading.Lock()


def _address() -> str:
    with _starting:
        return _started_server()


@cache
def _started_server() -> str:
    """Start this process's server, which ends with it. Return the address."""
    directory = tempfile.TemporaryDirectory(prefix="moor-forks-")
    address = str(Path(directory.name) / "socket")
    server = subprocess.Popen(
        # The last argument is room for the command lines of forks.
        [_PYTHON, "-m", "tests.forks", address, "-" * _LONGEST_COMMAND_LINE],
        cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert server.stdin is not None
    assert server.stdout is not None

    def stop() -> None:
        server.communicate()
        directory.cleanup()

    atexit.register(stop)
    assert server.stdout.readline() == b"ready\n", "the server of forks does not start"
    return address


class _Server:
    """Forks a child for each connection; answers with its id, then with its wait status.

    It ends with its standard input.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(64)
        self._selector = selectors.DefaultSelector()
        self._selector.register(0, selectors.EVENT_READ, self._end)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._is_ending = False

    def serve(self) -> None:
        while not self._is_ending:
            for key, _ in self._selector.select():
                act: Callable[[], None] = key.data
                act()

    def _end(self) -> None:
        self._is_ending = True

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        size, descriptors, _, _ = socket.recv_fds(connection, _SIZE.size, _MOST_DESCRIPTORS)
        with connection.makefile("rb") as stream:
            request = json.loads(stream.read(*_SIZE.unpack(size)))
        pid = os.fork()
        if pid == 0:
            # Not in its process: it may have threads when it starts a program.
            global _started_server
            _started_server = lambda: self._address  # type: ignore[assignment]  # noqa: E731
            _become_program(
                request["arguments"],
                directory=request["cwd"],
                environment=request["environment"],
                descriptors=dict(zip(request["numbers"], descriptors, strict=True)),
                is_session=request["is_session"],
            )
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(BrokenPipeError):
            connection.sendall(_PID.pack(pid))
        self._watch(pid, connection)

    def _watch(self, pid: int, connection: socket.socket) -> None:
        process = os.pidfd_open(pid)

        def end() -> None:
            self._selector.unregister(process)
            os.close(process)
            _, status = os.waitpid(pid, 0)
            with connection, suppress(BrokenPipeError):
                connection.sendall(_STATUS.pack(status))

        self._selector.register(process, selectors.EVENT_READ, end)


def _become_program(
    arguments: Sequence[str],
    *,
    directory: str | os.PathLike[str],
    environment: Mapping[str, str],
    descriptors: Mapping[int, int],
    is_session: bool,
) -> NoReturn:
    """Run a module in this process, a child's, as its program; end the process with it.

    `descriptors` are those that it has, by their numbers in it. Nothing of the frames and objects
    of its parent comes to an end in it: their descriptors are closed by then, and others have them.
    """
    status = 1
    try:
        if is_session:
            os.setsid()
        _restore_signals()
        _take_descriptors(descriptors)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        time.tzset()
        for name, mode, number in (("stdin", "r", 0), ("stdout", "w", 1), ("stderr", "w", 2)):
            setattr(sys, name, _text(number, mode, getattr(sys, name)))
        _set_command_line([_PYTHON, "-m", *arguments])
        set_launcher(partial(launch, of=OwnFork) if arguments[0] == _SUPERVISOR else launch)
        gc.enable()
        status = _status_of(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _restore_signals() -> None:
    """Have each signal do what it does in a new interpreter."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            is_interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)


def _take_descriptors(descriptors: Mapping[int, int]) -> None:
    """Have exactly these descriptors, by their numbers here."""
    aside = {
        number: fcntl.fcntl(descriptor, fcntl.F_DUPFD, _ASIDE)
        for number, descriptor in descriptors.items()
    }
    kept = set(aside.values())
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            # That of the listing is gone.
            with suppress(OSError):
                os.close(int(name))
    for number, descriptor in aside.items():
        os.dup2(descriptor, number)
        os.close(descriptor)


def _set_command_line(words: Iterable[str]) -> None:
    """Have /proc/PID/cmdline show these words, which are in the place of the server's own."""
    # Of proc(5): behind the name in parentheses, the fields from the third.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[48 - 3]), int(fields[49 - 3])
    text = b"".join(word.encode() + b"\0" for word in words)[: end - start - 1]
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        memory.write(text.ljust(end - start, b"\0"))


def _status_of(arguments: Sequence[str]) -> int:
    """Run a module with its arguments. Return the status with which the interpreter would end."""
    status = 0
    sys.argv = list(arguments)
    sys.path[0] = os.getcwd()
    try:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, int):
            status = ended.code
        elif ended.code is not None:
            print(ended.code, file=sys.stderr)
            status = 1
    except KeyboardInterrupt:
        traceback.print_exc()
        status = 130
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    return status


def _text(number: int, mode: str, like: Any) -> TextIOWrapper:
    """A standard stream as the interpreter makes it."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    return TextIOWrapper(
        open(number, f"{mode}b", closefd=False),
        encoding=like.encoding, errors=like.errors,
        line_buffering=os.isatty(number) or number == 2, write_through=unbuffered and mode == "w",
    )  # fmt: skip


def _main(address: str) -> None:
    # Only here: processes that start the server need none of it.
    from moorage.cli import commands
    from moorage.cluster.importing import import_program

    imported = [f"moorage.cluster.parts.{part}" for part in _PARTS]
    imported += (
        f"{commands.__name__}.{each.name}" for each in pkgutil.iter_modules(commands.__path__)
    )
    for name in (*imported, *_PROGRAMS):
        import_program(name)
    # A fork executes them again, as its main module.
    for name in _PROGRAMS:
        del sys.modules[name]
    gc.collect()
    gc.freeze()
    # A fork that frees or collects would copy the pages of what all share.
    gc.disable()
    server = _Server(address)
    print("ready", flush=True)
    server.serve()


if __name__ == "__main__":
    # The forks' modules import this one by its name.
    sys.modules["tests.forks"] = sys.modules["__main__"]
    _main(sys.argv[1])
