"""Preparation of the guest: kernel, initial file system, disk and keys in a directory.

The disk has Debian with systemd, the packages that a node of ours needs, and Moorage's dependencies
in a virtual environment at VENV; Moorage itself is installed by the tests, from the tree that they
are of. Source: mmdebstrap(1), mke2fs(8) option -d.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from moorage.cluster.host.packages import PACKAGES

REPOSITORY = Path(__file__).resolve().parents[2]
LOCK = REPOSITORY / "requirements" / "run.lock"
VENV = "/opt/moorage"
HOSTNAME = "guest"
ADDRESS, GATEWAY = "10.0.2.15", "10.0.2.2"
TOOLS = {
    "mmdebstrap": "mmdebstrap",
    "qemu-system-x86_64": "qemu-system-x86",
    "linux.uml": "user-mode-linux",
    "mke2fs": "e2fsprogs",
    "ssh-keygen": "openssh-client",
}
"""Programs of this machine that the guest needs, and the Debian packages that have them."""

KERNEL, INITRD, DISK, KEY, KNOWN_HOSTS, PREPARED = (
    "vmlinuz", "initrd.img", "disk.img", "key", "known_hosts", "prepared",
)  # fmt: skip
USER_MODE_MODULES = Path("/usr/lib/uml/modules")
"""The modules of the package's kernel, beside those of the kernel that QEMU boots."""
_SUITE = "bookworm"
_SYSTEM = (
    "systemd", "systemd-sysv", "dbus", "openssh-server", "linux-image-cloud-amd64", "procps",
    "python3", "python3-venv", "kmod", "ca-certificates",
)  # fmt: skip
_DISK_SIZE = "6G"
_DEADLINE_S = 1800.0
_NETWORK = f"[Match]\nName=e* vec*\n[Network]\nAddress={ADDRESS}/24\nGateway={GATEWAY}\n"
_SSHD = "PasswordAuthentication no\nPermitRootLogin prohibit-password\nMaxSessions 100\n"


class GuestError(Exception):
    """The guest cannot be prepared, booted or reached; the text says why."""


def identity() -> str:
    """Return what a prepared guest was made of; it is of use only for the same."""
    content = (LOCK.read_bytes(), Path(__file__).read_bytes(), ",".join(PACKAGES).encode())
    return hashlib.sha256(b"\0".join(content)).hexdigest()


def prepare(directory: Path) -> None:
    """Make the guest in a directory, which is replaced. Raises GuestError."""
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        raise GuestError(f"apt-get install --no-install-recommends {' '.join(missing)}")
    if os.geteuid() != 0:
        raise GuestError("the guest's files have owners, which needs root: run as root")
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="guest-", dir=directory) as place:
        _prepare(directory, Path(place))
    (directory / PREPARED).write_text(identity())


def _prepare(directory: Path, place: Path) -> None:
    root, wheels = place / "root", place / "wheels"
    _run(
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--require-hashes", "--only-binary=:all:", "--no-deps", "--dest", str(wheels),
        "--requirement", str(LOCK),
    )  # fmt: skip
    install = (
        f'chroot "$1" sh -ec \'python3 -m venv {VENV}; {VENV}/bin/pip install --quiet --no-index '
        "--no-deps --find-links /wheels /wheels/*.whl'"
    )
    _run(
        "mmdebstrap", "--variant=minbase", "--format=directory", "--quiet",
        f"--include={','.join((*_SYSTEM, *PACKAGES))}",
        f'--customize-hook=copy-in "{wheels}" /',
        f"--customize-hook={install}",
        '--customize-hook=rm -r "$1/wheels"',
        _SUITE, str(root), *_sources(),
    )  # fmt: skip
    _configure(root, directory)
    shutil.copytree(USER_MODE_MODULES, root / "usr/lib/modules", symlinks=True, dirs_exist_ok=True)
    for name, pattern in ((KERNEL, "vmlinuz-*"), (INITRD, "initrd.img-*")):
        (file,) = (root / "boot").glob(pattern)
        shutil.copy(file, directory / name)
    _run("mke2fs", "-q", "-t", "ext4", "-d", str(root), str(directory / DISK), _DISK_SIZE)


def _sources() -> list[str]:
    """Return apt's files that name Debian's archives, as apt is configured here."""
    directory = Path("/etc/apt")
    files = [directory / "sources.list", *sorted((directory / "sources.list.d").glob("*"))]
    found = [
        str(file) for file in files
        if file.suffix in (".list", ".sources") and file.is_file() and _SUITE in file.read_text()
        and "debian-archive-keyring" in file.read_text()
    ]  # fmt: skip
    if not found:
        raise GuestError(f"no file of {directory} names an archive of Debian {_SUITE}")
    return found


def _configure(root: Path, directory: Path) -> None:
    """Give the guest its name, its network, and the keys by which it is reached."""
    for key in (directory / KEY, root / "etc/ssh/ssh_host_ed25519_key"):
        key.unlink(missing_ok=True)
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "guest", "-f", str(key))
    public = (root / "etc/ssh/ssh_host_ed25519_key.pub").read_text()
    (directory / KNOWN_HOSTS).write_text(f"{HOSTNAME} {public}")
    files = {
        "etc/hostname": f"{HOSTNAME}\n",
        "etc/hosts": f"127.0.0.1 localhost\n127.0.1.1 {HOSTNAME}\n::1 localhost\n",
        "etc/systemd/network/guest.network": _NETWORK,
        "etc/ssh/sshd_config.d/guest.conf": _SSHD,
        "root/.ssh/authorized_keys": (directory / f"{KEY}.pub").read_text(),
    }
    for name, content in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.write_text(content)
    (root / "etc/systemd/network").chmod(0o755)
    _run("systemctl", f"--root={root}", "enable", "--quiet", "systemd-networkd", "ssh")


def _run(*command: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_DEADLINE_S,
        stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    if done.returncode:
        raise GuestError(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-2000:]}")
