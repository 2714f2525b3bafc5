"""Test runs on a copy of the tree, each in a forked process.

The libraries of others are imported once, in the parent; the product and its tests are imported by
each child, which therefore meets the fault wherever it is.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from tests.mutants.calls import CallRecorder, TestCalls, read_calls, write_calls
from tests.mutants.faults import Fault, apply_fault

_LIBRARIES = (
    "aiohttp", "aiohttp.web", "aiohttp.test_utils", "asyncio", "click", "click.testing",
    "cryptography.x509", "cryptography.hazmat.primitives.serialization",
    "google.protobuf.json_format", "grpc", "grpc.aio", "hypothesis", "hypothesis.strategies",
    "jsonpatch", "jwt", "msgspec",
    "pytest_asyncio", "unittest.mock", "uvloop", "yaml", "yarl",
)  # fmt: skip
_COPIED = (
    "src", "tests", "examples", "docs", "bench", "requirements", "pyproject.toml", "README.md",
    "CHANGELOG.md", "LICENSE", "Makefile", "hatch_build.py",
)  # fmt: skip
# Fixtures and directories of whole clusters and engines: they take minutes.
_SLOW_FIXTURES = {"control_plane", "whole_cluster"}
_SLOW_DIRECTORIES = {"whole", "mutants"}
_TEST_TIMEOUT_S = 60
# With calls recorded, tests take several times as long.
_RECORDED_TEST_TIMEOUT_S = 600
# Beyond what the tests take without a fault: machine load, and one test that runs into its timeout.
_GRACE_S = 75.0
# In seconds, added to a faulty file's mtime: compiled files of the same second would be used else.
_LATER_S = 1000


def copy_tree(tree: Path, copy: Path) -> None:
    """Copy what tests need of a tree."""
    for name in _COPIED:
        if (tree / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(tree / name, copy / name, ignore=ignored, symlinks=True)
        else:
            shutil.copy2(tree / name, copy / name)


def import_libraries() -> None:
    """Import what children would else import each time. A library that is missing is left out."""
    for name in _LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


class Selection:
    """A pytest plugin that keeps the named tests, in their order, or all fast ones for None.

    A case whose name is not among `known` is kept if another case of its test is: a fault may
    change the parameters that cases are named after.
    """

    def __init__(self, names: Sequence[str] | None, known: Collection[str] = ()) -> None:
        self._order = None if names is None else {name: at for at, name in enumerate(names)}
        self._known = known

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._order is None:
            items[:] = [item for item in items if _is_fast(item)]
        else:
            order = dict(self._order)
            functions = {_function(name): at for name, at in reversed(self._order.items())}
            for item in items:
                if item.nodeid not in self._known and _function(item.nodeid) in functions:
                    order.setdefault(item.nodeid, functions[_function(item.nodeid)])
            items[:] = sorted(
                (item for item in items if item.nodeid in order),
                key=lambda item: order[item.nodeid],
            )


def _function(name: str) -> str:
    return name.partition("[")[0]


def _is_fast(item: pytest.Item) -> bool:
    if item.get_closest_marker("slow") is not None or _SLOW_DIRECTORIES & set(item.path.parts):
        return False
    return not _SLOW_FIXTURES & set(getattr(item, "fixturenames", ()))


class Session:
    """Runs tests in `copy`, a copy of `tree`."""

    def __init__(self, tree: Path, copy: Path) -> None:
        self._tree = tree
        self._copy = copy
        self._known: frozenset[str] = frozenset()

    def record(self, package: str, *, output: Path) -> dict[str, TestCalls]:
        """Run the fast tests of a package without a fault; return what each calls, of those it has.

        Raises:
            RuntimeError: the tests could not be run at all.
        """
        rows = self._copy / f"calls-{package.replace('/', '-')}.json"

        if not (self._copy / "tests" / package).is_dir():
            return {}

        def run() -> int:
            recorder = CallRecorder(self._copy / "src")
            self._pytest(
                [f"tests/{package}"],
                [Selection(None), recorder],
                f"--timeout={_RECORDED_TEST_TIMEOUT_S}",
                "--continue-on-collection-errors",
            )
            write_calls(recorder.tests, rows)
            return 0

        if self._forked(run, output, 3600.0) != 0:
            raise RuntimeError(f"the tests of {package} cannot be run: see {output}")
        calls = read_calls(rows)
        self._known = frozenset(calls)
        return calls

    def notices(self, fault: Fault, names: Sequence[str], expected_s: float, output: Path) -> bool:
        """Return whether one of the tests fails with this fault, or does not end."""
        path = self._copy / "src" / fault.path
        source, times = path.read_text(), path.stat()
        path.write_text(apply_fault(source, fault))
        os.utime(path, (times.st_atime, times.st_mtime + _LATER_S))

        def run() -> int:
            sys.dont_write_bytecode = True
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            files = list(dict.fromkeys(name.partition("::")[0] for name in names))
            options = ("-x", "-p", "no:cacheprovider", f"--timeout={_TEST_TIMEOUT_S}")
            return self._pytest(files, [Selection(names, self._known)], *options)

        try:
            return self._forked(run, output, 4 * expected_s + _GRACE_S) != 0
        finally:
            path.write_text(source)
            os.utime(path, (times.st_atime, times.st_mtime))

    def _pytest(self, paths: Sequence[str], plugins: list[object], *options: str) -> int:
        for name in [
            name for name in sys.modules if name.partition(".")[0] in ("moorage", "tests")
        ]:
            del sys.modules[name]
        theirs = {str(self._tree), str(self._tree / "src"), ""}
        others = [path for path in sys.path if path not in theirs]
        sys.path[:] = [str(self._copy), str(self._copy / "src"), *others]
        os.environ["PYTHONPATH"] = f"{self._copy}/src:{self._copy}"
        sys.argv = ["pytest"]
        arguments = ["--no-header", *options, *paths]
        return int(pytest.main(arguments, plugins=plugins))

    def _forked(self, run: Callable[[], int], output: Path, timeout_s: float) -> int:
        """Run in a child that owns a session; return its status, or 1 if it was too slow."""
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            status = 70
            try:
                os.setsid()
                os.chdir(self._copy)
                with output.open("wb") as file:
                    os.dup2(file.fileno(), 1)
                    os.dup2(file.fileno(), 2)
                status = run()
                sys.stdout.flush()
            finally:
                os._exit(status)
        deadline = time.monotonic() + timeout_s
        ended: int | None = None
        while ended is None and time.monotonic() < deadline:
            ended = _reaped(child)
            if ended is None:
                time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if ended is None:
            os.waitpid(child, 0)
            return 1
        return ended


def _reaped(child: int) -> int | None:
    """Return a child's exit status if it has ended. As init of a namespace, reap orphans too."""
    while True:
        try:
            pid, status = os.waitpid(-1 if os.getpid() == 1 else child, os.WNOHANG)
        except ChildProcessError:
            return 1
        if pid == 0:
            return None
        if pid == child:
            return os.waitstatus_to_exitcode(status)
