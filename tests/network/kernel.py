"""Kernels for tests: one that keeps scripts, and network namespaces of this one."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from moorage.linux.nftables import Nftables, NftablesError, NftablesMissingError


class FakeKernel:
    """Keeps the scripts that it is given; `refuses` are reasons why the next ones fail.

    It always refuses scripts with `refuses_scripts_with`.
    """

    def __init__(self) -> None:
        self.scripts: list[str] = []
        self.refuses: list[str] = []
        self.refuses_scripts_with = ""
        self.numbers: tuple[int, ...] = (1, 2)

    def run(self, script: str) -> str:
        self.scripts.append(script)
        if self.refuses:
            raise NftablesError(self.refuses.pop(0))
        if self.refuses_scripts_with and self.refuses_scripts_with in script:
            raise NftablesError("no space")
        return ""

    def rules(self, family: str, table: str, chains: Iterable[str]) -> tuple[int, ...]:
        del family, table, chains
        return self.numbers


class Namespace:
    """A network namespace by its name, in which programs and scripts of nft are run."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, *argv: str, timeout_s: float = 20, stdin: str = "") -> str:
        """Run a program in it and return its output. Fails the test if the program fails."""
        done = subprocess.run(
            ["ip", "netns", "exec", self.name, *argv],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            input=stdin,
            check=False,
        )
        assert not done.returncode, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def apply(self, script: str) -> None:
        """Run a script of nft in it, by the library, in a process of its own."""
        code = "import sys; from moorage.linux.nftables import Nftables; "
        code += "print(Nftables().run(sys.stdin.read()))"
        import sys

        self.run(sys.executable, "-c", code, stdin=script)


@contextmanager
def namespace() -> Iterator[Namespace]:
    """Yield a new network namespace with a loopback; it is deleted afterwards."""
    name = f"moorage-{uuid.uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        one = Namespace(name)
        one.run("ip", "link", "set", "lo", "up")
        yield one
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def skip_without_nftables() -> None:
    """Skip the test where the library or root is missing, with the reason."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    try:
        Nftables().close()
    except NftablesMissingError as error:
        pytest.skip(str(error))
