"""Python packages of the image: those of the hashed lock and Moorage's wheel, compiled.

Modules are compiled with unchecked hashes: nothing is compared at a start, and no time is in the
files. Source: PEP 552, pip "Hash-checking Mode".
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from fnmatch import fnmatch
from pathlib import Path

from tools.image.debian import PYTHON
from tools.image.tree import PROGRAM_MODE, Tree

REPOSITORY = Path(__file__).resolve().parents[2]
LOCK = REPOSITORY / "requirements" / "run.lock"
SITE = f"usr/local/lib/{PYTHON}/dist-packages"
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_OLDEST_GLIBC, _GLIBC = 17, 36
"""The minor versions of manylinux tags that run on Debian 12."""
_LEFT_OUT = ("bin/*", "*/tests/*", "*.pyi", "*.pyx", "*.pxd", "*.c", "*.h", "*/direct_url.json",
             "*/REQUESTED", "*/__pycache__/*", "*/RECORD", "*/INSTALLER",
             "*/uv_cache.json", ".lock")  # fmt: skip
_START = b"""#!/usr/bin/python3.11
from moorage.cli.main import main

main()
"""
_DEADLINE_S = 1200.0


class BuildError(Exception):
    """A step of the build failed; the text says which, and why."""


def build_wheel(place: Path, moment: int, source: Path = REPOSITORY) -> Path:
    """Build the wheel of a source tree, with the build packages of this environment.

    Raises BuildError.
    """
    place.mkdir(parents=True, exist_ok=True)
    for old in place.glob("*.whl"):
        old.unlink()
    _pip(
        "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(place), str(source),
        SOURCE_DATE_EPOCH=str(moment),
    )  # fmt: skip
    (wheel,) = place.glob("*.whl")
    return wheel


def install(architecture: str, wheel: Path, place: Path) -> None:
    """Install the lock's packages of an architecture and the wheel into a directory.

    uv takes a thirtieth of pip's time. Where it is missing or cannot, as with an index of pip's
    configuration, pip does. Raises BuildError.
    """
    machine = _MACHINES[architecture]
    if _uv(machine, place, "--require-hashes", "--requirement", str(LOCK)) and _uv(
        machine, place, "--no-cache", str(wheel)
    ):
        return
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(_GLIBC, _OLDEST_GLIBC - 1, -1)]
    tags += [f"manylinux2014_{machine}", f"linux_{machine}"]
    target = [
        "--target", str(place), "--no-compile", "--only-binary=:all:", "--no-deps",
        "--implementation=cp", f"--python-version={PYTHON.removeprefix('python')}",
        *(f"--platform={tag}" for tag in tags),
    ]  # fmt: skip
    _pip("install", *target, "--require-hashes", "--requirement", str(LOCK))
    _pip("install", *target, str(wheel))


def _uv(machine: str, place: Path, *what: str) -> bool:
    """Install by uv. Return whether it could."""
    program = Path(sys.executable).with_name("uv")
    if not program.exists():
        return False
    target = [
        "--python", sys.executable, "--target", str(place), "--no-deps", "--link-mode=copy",
        "--only-binary=:all:", f"--python-platform={machine}-manylinux_2_{_GLIBC}",
        f"--python-version={PYTHON.removeprefix('python')}",
    ]  # fmt: skip
    done = subprocess.run(
        [program, "pip", "install", "--quiet", *target, *what],
        capture_output=True, check=False, timeout=_DEADLINE_S,
    )  # fmt: skip
    return done.returncode == 0


def _pip(*arguments: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
        timeout=_DEADLINE_S,
    )  # fmt: skip
    if done.returncode:
        raise BuildError(f"pip {arguments[0]} failed: {done.stderr.strip()[-2000:]}")


def add_packages(tree: Tree, installed: Path) -> None:
    """Add installed packages to a tree, and the program `moor`."""
    for path in sorted(installed.rglob("*")):
        name = path.relative_to(installed).as_posix()
        if path.is_file() and not any(fnmatch(name, pattern) for pattern in _LEFT_OUT):
            tree.add_file(f"{SITE}/{name}", path.read_bytes())
    tree.add_file("usr/local/bin/moor", _START, PROGRAM_MODE)


def add_compiled(tree: Tree) -> None:
    """Compile the modules of a tree into it, in directories of their own. Raises BuildError.

    In a process of its own that does nothing else, because what a compiled module looks like
    depends on which texts the process has seen before.
    """
    if f"python{sys.version_info.major}.{sys.version_info.minor}" != PYTHON:
        raise BuildError(f"modules are compiled by {PYTHON}: run this with it")
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for path, entry in tree.items():
            if path.endswith(".py") and entry.content is not None:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(entry.content)
        environment = {key: value for key, value in os.environ.items() if "PYTHON" not in key}
        done = subprocess.run(
            [sys.executable, "-c", _COMPILE, str(root)],
            env={**environment, "PYTHONHASHSEED": "0"}, capture_output=True, text=True,
            check=False, timeout=_DEADLINE_S,
        )  # fmt: skip
        if done.returncode:
            raise BuildError(f"modules do not compile: {done.stderr.strip()[-2000:]}")
        for compiled in sorted(root.rglob("*.pyc")):
            tree.add_file(compiled.relative_to(root).as_posix(), compiled.read_bytes())
    tree.complete()


_COMPILE = """
import os, py_compile, sys
root = sys.argv[1]
for directory, names, files in os.walk(root):
    names.sort()
    for name in sorted(files):
        path = os.path.join(directory, name)
        if name.endswith('.py'):
            try:
                py_compile.compile(
                    path, dfile=path[len(root):], doraise=True, quiet=0,
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )
            except py_compile.PyCompileError as error:
                # Packages have templates and modules of other versions among their files.
                print(error, file=sys.stderr)
"""
