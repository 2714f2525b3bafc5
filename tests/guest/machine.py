"""The booted guest, reached by ssh: on QEMU with KVM, else on user-mode Linux, else emulated.

Its disk is a snapshot, so that nothing of a run is kept. It reaches no network.
"""

from __future__ import annotations

import io
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.guest import qemu, user_mode
from tests.guest.preparation import (
    HOSTNAME,
    KEY,
    KNOWN_HOSTS,
    PREPARED,
    TOOLS,
    GuestError,
    identity,
)
from tests.guest.reach import Reach

BOOT_WITHIN_S = 600.0
RUN_WITHIN_S = 600.0
FILES = "/files"
"""Where the guest has the files that it was given."""
_UNREACHABLE = 255
"""The exit code of ssh when it has no connection."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended in the guest."""

    code: int
    output: str
    errors: str


class Program:
    """The program that is the guest's machine; its output is the console."""

    def __init__(self, argv: list[str], console: Path) -> None:
        self._argv = argv
        self.console = console
        self.running = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self.console.open("ab") as log:
            return subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start_again(self, within_s: float) -> None:
        """Wait until it has ended, and start it again. Raises TimeoutExpired."""
        self.running.wait(within_s)
        self.running = self._started()

    def kill(self) -> None:
        self.running.kill()
        self.running.wait()


class Guest:
    """A guest that runs; its disk and memory are gone when it stops."""

    def __init__(self, directory: Path, place: Path, reach: Reach, program: Program) -> None:
        self._program = program
        self._directory = directory
        self._place = place
        self._reach = reach
        self._forwarded: set[Path] = set()

    def run(
        self, command: str, *, stdin: bytes | None = None, within_s: float = RUN_WITHIN_S
    ) -> Ended:
        """Run a shell command as root; return its exit code and output.

        Raises GuestError if the guest cannot be reached, TimeoutExpired.
        """
        done = subprocess.run(
            [*self._ssh(), "--", f"exec sh -c {shlex.quote(command)}"],
            input=stdin or b"", capture_output=True, check=False, timeout=within_s,
        )  # fmt: skip
        output, errors = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        if done.returncode == _UNREACHABLE:
            raise GuestError(f"the guest is not reached: {errors.strip()}")
        return Ended(done.returncode, output, errors)

    def must(
        self, command: str, *, stdin: bytes | None = None, within_s: float = RUN_WITHIN_S
    ) -> str:
        """Run a shell command that succeeds; return its output. Raises AssertionError."""
        ended = self.run(command, stdin=stdin, within_s=within_s)
        assert ended.code == 0, f"{command}: {ended.code}: {ended.output}{ended.errors}"
        return ended.output

    def write(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Write a file, which appears with its content, and the directories above it."""
        directory, name = (shlex.quote(part) for part in path.rsplit("/", 1))
        self.must(
            f"mkdir -p {directory} && cd {directory} && cat > .new && chmod {mode:o} .new && "
            f"mv .new {name}",
            stdin=content,
        )

    def write_all(self, files: Mapping[str, str]) -> None:
        """Write files of text, in one go, and the directories above them."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for path, text in files.items():
                entry = tarfile.TarInfo(path.lstrip("/"))
                content = text.encode()
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        self.must("tar -x -C / --no-overwrite-dir", stdin=packed.getvalue())

    def until(self, command: str, within_s: float = 60.0) -> str:
        """Repeat a command until it succeeds; return its output. Raises AssertionError."""
        deadline = time.monotonic() + within_s
        while True:
            ended = self.run(command)
            if ended.code == 0:
                return ended.output
            assert time.monotonic() < deadline, (
                f"not within {within_s:g} s: {command}: {ended.output}{ended.errors}"
            )
            time.sleep(0.5)

    @property
    def is_user_mode(self) -> bool:
        """Whether its kernel is a program of this machine."""
        return bool(self._reach.entry)

    def forwarded(self, port: int) -> Path:
        """Return a Unix socket of this machine that reaches a port of the guest's loopback.

        Raises GuestError.
        """
        socket = self._place / f"port-{port}"
        if socket not in self._forwarded:
            forward = ["-L", f"{socket}:127.0.0.1:{port}"]
            done = subprocess.run(
                [*self._ssh(), "-O", "forward", *forward],
                capture_output=True, text=True, check=False, timeout=60,
            )  # fmt: skip
            if done.returncode:
                raise GuestError(f"port {port} is not forwarded: {done.stderr.strip()}")
            self._forwarded.add(socket)
        return socket

    def reboot(self) -> None:
        """Reboot; return when systemd has started everything. Raises GuestError."""
        before = self.must("cat /proc/sys/kernel/random/boot_id")
        # User-mode Linux that starts itself again does not let go of its network device.
        self.run(f"systemctl --no-block {'poweroff' if self.is_user_mode else 'reboot'}")
        if self.is_user_mode:
            self._program.start_again(BOOT_WITHIN_S)
        deadline = time.monotonic() + BOOT_WITHIN_S
        while True:
            self._disconnect()
            try:
                if self.must("cat /proc/sys/kernel/random/boot_id") != before:
                    break
            except GuestError:
                pass
            if time.monotonic() > deadline:
                raise GuestError(f"the guest has not rebooted within {BOOT_WITHIN_S:g} s")
            time.sleep(0.5)
        self.run("systemctl is-system-running --wait", within_s=BOOT_WITHIN_S)

    def _ssh(self) -> list[str]:
        options = {
            "UserKnownHostsFile": self._directory / KNOWN_HOSTS, "HostKeyAlias": HOSTNAME,
            "StrictHostKeyChecking": "yes", "IdentitiesOnly": "yes", "BatchMode": "yes",
            "ConnectTimeout": 60, "LogLevel": "ERROR", "ControlMaster": "auto",
            "ControlPath": self._place / "ssh", "ControlPersist": 60, "ServerAliveInterval": 15,
        }  # fmt: skip
        named = [f"-o{name}={value}" for name, value in options.items()]
        key = ["-i", str(self._directory / KEY), "-p", str(self._reach.port)]
        return [*self._reach.entry, "ssh", "-F", "none", *named, *key, f"root@{self._reach.host}"]

    def _disconnect(self) -> None:
        for socket in self._forwarded:
            socket.unlink(missing_ok=True)
        self._forwarded.clear()
        subprocess.run([*self._ssh(), "-O", "exit"], capture_output=True, check=False, timeout=30)


def unusable(directory: Path) -> str:
    """Return why a prepared guest cannot be booted here, empty if it can."""
    if not (directory / PREPARED).exists():
        return f"{directory} holds no prepared guest: make guest"
    if (directory / PREPARED).read_text() != identity():
        return f"the guest in {directory} was prepared from other packages: make guest"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"{', '.join(missing)} not installed: make guest"
    return ""


def _make_files_disk(files: Path, disk: Path) -> Path:
    """Make a disk of a directory: ssh would take minutes for what an emulated guest decrypts."""
    size = sum(file.stat().st_size for file in files.rglob("*") if file.is_file())
    mebibytes = size * 5 // 4 // 1024**2 + 16
    done = subprocess.run(
        ["mke2fs", "-q", "-t", "ext4", "-d", str(files), str(disk), f"{mebibytes}M"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    if done.returncode:
        raise GuestError(f"mke2fs failed: {done.stderr.strip()}")
    return disk


@contextmanager
def booted(directory: Path, files: Path | None = None) -> Iterator[Guest]:
    """A guest that answers, until the end of the block, with a directory at FILES, read-only.

    Raises GuestError.
    """
    if reason := unusable(directory):
        raise GuestError(reason)
    directory = directory.absolute()
    kind = user_mode if not qemu.uses_kvm() and user_mode.is_installed() else qemu
    with tempfile.TemporaryDirectory(prefix="guest-") as name:
        place = Path(name)
        disk = None if files is None else _make_files_disk(files, place / "files.img")
        with kind.machine(directory, place, disk) as (argv, reach):
            program = Program(argv, place / "console")
            guest = Guest(directory, place, reach, program)
            try:
                _wait(guest, program)
                guest.must(kind.ADAPTATION)
                if files is not None:
                    line = f"{kind.FILES_DEVICE} {FILES} ext4 ro 0 0"
                    guest.must(f"mkdir -p {FILES} && echo '{line}' >> /etc/fstab")
                guest.must("systemctl daemon-reload && mount -a")
                yield guest
            finally:
                guest._disconnect()
                program.kill()


def _wait(guest: Guest, program: Program) -> None:
    """Wait until systemd has started everything. Raises GuestError."""
    deadline = time.monotonic() + BOOT_WITHIN_S
    while True:
        try:
            ended = guest.run("systemctl is-system-running --wait", within_s=BOOT_WITHIN_S)
        except GuestError as error:
            reason = str(error)
        else:
            if ended.output.strip() in ("running", "degraded"):
                return
            reason = f"systemd is {ended.output.strip()}{ended.errors}"
        if program.running.poll() is not None or time.monotonic() > deadline:
            text = program.console.read_text(errors="replace")[-4000:]
            raise GuestError(f"the guest does not boot: {reason}\n{text}")
        time.sleep(0.5)
