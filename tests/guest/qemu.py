"""QEMU as the guest's machine: its command line, and whether KVM makes it fast here.

It reaches no network: QEMU forwards a port of the loopback to the guest's ssh, and nothing else.
Source: qemu(1) options -nic user, -drive snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.guest.preparation import DISK, INITRD, KERNEL
from tests.guest.reach import Reach
from tests.ports import free_port

MEMORY_MIB, CPUS = 2560, 2
FILES_DEVICE = "/dev/vdb"
ADAPTATION = ""
_KVM = Path("/dev/kvm")
_CPU_INFO = Path("/proc/cpuinfo")
_KVM_CPU, _EMULATED_CPU = "host", "max"


def has_kvm(cpu_info: str, *, has_device: bool) -> bool:
    """Return whether KVM runs an unmodified kernel, by the text of /proc/cpuinfo.

    Without the processor's own virtualisation there may be a device all the same, of a KVM that
    emulates such a kernel, slower than QEMU does.
    """
    flags = {
        flag for line in cpu_info.splitlines() if line.startswith("flags") for flag in line.split()
    }
    return has_device and not flags.isdisjoint(("vmx", "svm"))


def uses_kvm() -> bool:
    """Return whether KVM runs an unmodified kernel on this machine."""
    return has_kvm(_CPU_INFO.read_text(), has_device=_KVM.exists())


@contextmanager
def machine(directory: Path, place: Path, files: Path | None) -> Iterator[tuple[list[str], Reach]]:
    """The command line of a guest, and how it is reached."""
    del place
    port = free_port()
    argv = command(directory, port, files, uses_kvm=uses_kvm())
    yield argv, Reach("127.0.0.1", port)


def command(directory: Path, port: int, files: Path | None = None, *, uses_kvm: bool) -> list[str]:
    """Return QEMU's command line for a prepared guest, with ssh at a port of the loopback."""
    accelerator = "kvm" if uses_kvm else "tcg,thread=multi"
    network = f"user,model=virtio-net-pci,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"
    second = ["-drive", f"file={files},if=virtio,format=raw,readonly=on"] if files else []
    return [
        "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none",
        "-machine", "q35", "-accel", accelerator,
        "-cpu", _KVM_CPU if uses_kvm else _EMULATED_CPU, "-smp", str(CPUS), "-m", str(MEMORY_MIB),
        "-kernel", str(directory / KERNEL), "-initrd", str(directory / INITRD),
        "-append", "root=/dev/vda rw console=ttyS0 panic=-1 quiet",
        "-drive", f"file={directory / DISK},if=virtio,format=raw,snapshot=on",
        *second,
        "-nic", network, "-device", "virtio-rng-pci",
        "-serial", "stdio",
    ]  # fmt: skip
