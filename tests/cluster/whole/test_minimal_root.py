"""A new Debian with make and python3 alone: what the README promises of `make demo` there.

Takes minutes and a network, so it runs only when asked: MOORAGE_MINIMAL_ROOT=1 makes the root with
mmdebstrap, MOORAGE_MINIMAL_ROOT=/path/to/root.tar takes one made before. The machine's own
configuration of apt and pip is copied into the root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
_WANTED = os.environ.get("MOORAGE_MINIMAL_ROOT", "")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_STEP_S = 1200.0
_CONFIGURATION = ("etc/resolv.conf", "etc/hosts", "etc/apt/sources.list.d", "etc/apt/apt.conf.d")

# In namespaces of its own, so that all mounts and processes go with it. `pivot_root`, since
# runtimes cannot pivot in a root that `chroot` made.
_ENTER = """
set -e
mount --make-rprivate /
mount --bind "$0" "$0"
mount -t proc proc "$0/proc"
mount --rbind /sys "$0/sys"
for each in run tmp dev; do mount -t tmpfs -o mode=755 tmpfs "$0/$each"; done
chmod 1777 "$0/tmp"
for each in null zero full random urandom tty kvm; do
  [ -e "/dev/$each" ] || continue
  touch "$0/dev/$each"; mount --bind "/dev/$each" "$0/dev/$each"
done
ln -s /proc/self/fd "$0/dev/fd"
mkdir "$0/dev/pts" "$0/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$0/dev/pts"
ln -s pts/ptmx "$0/dev/ptmx"
hostname fresh
cd "$0"; mkdir -p old; pivot_root . old; cd /; umount -l /old
exec env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \\
  PIP_CERT=/opt/ca.crt sh -c "$1"
"""

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.slow,
    pytest.mark.timeout(2 * _STEP_S),
    pytest.mark.skipif(not _WANTED, reason="takes minutes: set MOORAGE_MINIMAL_ROOT=1"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A root with make, python3, empty package lists, and a copy of this repository."""
    place = tmp_path_factory.mktemp("minimal")
    archive, root = Path(_WANTED), place / "root"
    if not archive.is_absolute():
        if shutil.which("mmdebstrap") is None:
            pytest.skip("mmdebstrap is not installed")
        archive = place / "root.tar"
        _run("mmdebstrap", "--variant=minbase", "--include=make,python3", "bookworm", str(archive))
    root.mkdir()
    _run("tar", "-xf", str(archive), "-C", str(root), "--exclude=./dev/*")
    for name in _CONFIGURATION:
        _run("cp", "-rL", f"/{name}", str((root / name).parent))
    (root / "etc/apt/sources.list").unlink(missing_ok=True)
    shutil.copy(_CERTIFICATES, root / "opt" / "ca.crt")
    if Path("/etc/pip.conf").exists():
        text = Path("/etc/pip.conf").read_text()
        (root / "etc/pip.conf").write_text(text.replace(str(_CERTIFICATES), "/opt/ca.crt"))
    _run("git", "clone", "--quiet", str(REPOSITORY), str(root / "root" / "moorage"))
    yield root
    shutil.rmtree(root)


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_STEP_S, check=False)
    assert done.returncode == 0, f"{argv[0]}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def _inside(root: Path, script: str) -> str:
    namespaces = ("--mount", "--pid", "--uts", "--fork", "--kill-child")
    return _run(
        "unshare", *namespaces, "sh", "-c", _ENTER, str(root), f"cd /root/moorage && {script}"
    )


def test_the_demo_needs_make_and_python_alone(root: Path) -> None:
    answer = _inside(root, "make demo")
    assert "installing python3-venv" in answer
    rows = {line.split()[0]: line.split()[1] for line in answer.splitlines() if " crun " in line}
    assert rows["crun-limited"] == "Running", answer


def test_the_tests_of_rules_and_loops_hold_there(root: Path) -> None:
    assert "failed" not in _inside(root, "make packages lint unit")
