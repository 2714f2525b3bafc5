"""The booted guest: QEMU, reached by ssh at a port of the loopback interface.

Its disk is a snapshot, so that nothing of a run is kept. It reaches no network: QEMU forwards the
port, and nothing else. Source: qemu(1) options -nic user, -drive snapshot.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.guest.preparation import (
    DISK,
    HOSTNAME,
    INITRD,
    KERNEL,
    KEY,
    KNOWN_HOSTS,
    PREPARED,
    GuestError,
    identity,
)
from tests.ports import free_port

MEMORY_MIB, CPUS = 2560, 2
BOOT_WITHIN_S = 600.0
RUN_WITHIN_S = 600.0
FILES = "/files"
"""Where the guest has the files that it was given."""
FILES_DISK = "files.img"
_KVM = Path("/dev/kvm")
_CPU_INFO = Path("/proc/cpuinfo")
_KVM_CPU, _EMULATED_CPU = "host", "max"
_UNREACHABLE = 255
"""The exit code of ssh when it has no connection."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended in the guest."""

    code: int
    output: str
    errors: str


class Guest:
    """A guest that runs; its disk and memory are gone when it stops."""

    def __init__(self, directory: Path, place: Path, port: int) -> None:
        self._directory = directory
        self._place = place
        self._port = port
        self._forwarded: dict[int, int] = {}

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
        """Write a file, and the directories above it."""
        quoted = shlex.quote(path)
        self.must(
            f"mkdir -p $(dirname {quoted}) && cat > {quoted} && chmod {mode:o} {quoted}",
            stdin=content,
        )

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

    def forwarded(self, port: int) -> int:
        """Return the port of this machine's loopback that reaches one of the guest's.

        Raises GuestError.
        """
        if port not in self._forwarded:
            here = free_port()
            listen = f"127.0.0.1:{here}:127.0.0.1:{port}"
            self._forwarded[port] = self._forward(
                here, [*self._ssh(), "-O", "forward", "-L", listen]
            )
        return self._forwarded[port]

    def _forward(self, here: int, command: list[str]) -> int:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise GuestError(f"{' '.join(command[-4:])} failed: {done.stderr.strip()}")
        return here

    def reboot(self) -> None:
        """Reboot; return when systemd has started everything. Raises GuestError."""
        before = self.must("cat /proc/sys/kernel/random/boot_id")
        self.run("systemctl --no-block reboot")
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
        key = ["-i", str(self._directory / KEY), "-p", str(self._port)]
        return ["ssh", "-F", "none", *named, *key, "root@127.0.0.1"]

    def _disconnect(self) -> None:
        self._forwarded.clear()
        subprocess.run([*self._ssh(), "-O", "exit"], capture_output=True, check=False, timeout=30)


def unusable(directory: Path) -> str:
    """Return why a prepared guest cannot be booted here, empty if it can."""
    if not (directory / PREPARED).exists():
        return f"{directory} holds no prepared guest: make guest"
    if (directory / PREPARED).read_text() != identity():
        return f"the guest in {directory} was prepared from other packages: make guest"
    if shutil.which("qemu-system-x86_64") is None:
        return "qemu-system-x86_64 is not installed: make guest"
    return ""


def has_kvm(cpu_info: str, *, has_device: bool) -> bool:
    """Return whether KVM runs an unmodified kernel, by the text of /proc/cpuinfo.

    Without the processor's own virtualisation there may be a device all the same, of a KVM that
    emulates such a kernel, slower than QEMU does.
    """
    flags = {
        flag for line in cpu_info.splitlines() if line.startswith("flags") for flag in line.split()
    }
    return has_device and not flags.isdisjoint(("vmx", "svm"))


def command(
    directory: Path, place: Path, port: int, *, uses_kvm: bool, has_files: bool = False
) -> list[str]:
    """Return QEMU's command line for a prepared guest, with ssh at a port of the loopback."""
    files = f"file={place / FILES_DISK},if=virtio,format=raw,readonly=on"
    accelerator = "kvm" if uses_kvm else "tcg,thread=multi"
    network = f"user,model=virtio-net-pci,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"
    return [
        "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none",
        "-machine", "q35", "-accel", accelerator,
        "-cpu", _KVM_CPU if uses_kvm else _EMULATED_CPU, "-smp", str(CPUS), "-m", str(MEMORY_MIB),
        "-kernel", str(directory / KERNEL), "-initrd", str(directory / INITRD),
        "-append", "root=/dev/vda rw console=ttyS0 panic=-1 quiet",
        "-drive", f"file={directory / DISK},if=virtio,format=raw,snapshot=on",
        *(["-drive", files] if has_files else []),
        "-nic", network, "-device", "virtio-rng-pci",
        "-serial", f"file:{place / 'console'}",
    ]  # fmt: skip


def _make_files_disk(files: Path, disk: Path) -> None:
    """Make a disk of a directory: ssh would take minutes for what an emulated guest decrypts."""
    size = sum(file.stat().st_size for file in files.rglob("*") if file.is_file())
    mebibytes = size * 5 // 4 // 1024**2 + 16
    done = subprocess.run(
        ["mke2fs", "-q", "-t", "ext4", "-d", str(files), str(disk), f"{mebibytes}M"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    if done.returncode:
        raise GuestError(f"mke2fs failed: {done.stderr.strip()}")


@contextmanager
def booted(directory: Path, files: Path | None = None) -> Iterator[Guest]:
    """A guest that answers, until the end of the block, with a directory at FILES, read-only.

    Raises GuestError.
    """
    if reason := unusable(directory):
        raise GuestError(reason)
    directory = directory.absolute()
    with tempfile.TemporaryDirectory(prefix="guest-") as name:
        place, port = Path(name), free_port()
        uses_kvm = has_kvm(_CPU_INFO.read_text(), has_device=_KVM.exists())
        if files is not None:
            _make_files_disk(files, place / FILES_DISK)
        argv = command(directory, place, port, uses_kvm=uses_kvm, has_files=files is not None)
        with (place / "qemu.log").open("wb") as log:
            qemu = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        guest = Guest(directory, place, port)
        try:
            _wait(guest, qemu, place)
            if files is not None:
                guest.must(f"mkdir -p {FILES} && echo '/dev/vdb {FILES} ext4 ro 0 0' >> /etc/fstab")
                guest.must("systemctl daemon-reload && mount -a")
            yield guest
        finally:
            guest._disconnect()
            qemu.kill()
            qemu.wait()


def _wait(guest: Guest, qemu: subprocess.Popen[bytes], place: Path) -> None:
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
        if qemu.poll() is not None or time.monotonic() > deadline:
            logs = [(place / name) for name in ("qemu.log", "console")]
            text = "".join(log.read_text(errors="replace")[-2000:] for log in logs if log.exists())
            raise GuestError(f"the guest does not boot: {reason}\n{text}")
        time.sleep(0.5)
