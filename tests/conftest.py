"""The clusters that tests share: one control plane alone, one with a node."""

from __future__ import annotations

import gc
import itertools
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from moorage.cluster.launching import set_launcher
from moorage.linux.mounts import Mount, current_mounts
from moorage.linux.trees import remove_tree
from tests import forks
from tests.running import (
    RunningCluster,
    running,
    runtime_class,
    skip_without_kubectl,
    skip_without_runtimes,
)
from tests.runs import BELOW, CLUSTERS, ENGINES, HERE, RUNS, SERVERS, directory_run, run_of, runs_of

# A test run does the same each time; `make soak` lets Hypothesis look where it has not been, and
# `make unit` takes fewer examples.
# An example has no deadline: how long it takes depends on what else the machine does.
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=12)
settings.register_profile("random", deadline=None)
settings.load_profile("random" if os.environ.get("MOORAGE_FUZZ") else "steady")
if not os.environ.get("MOORAGE_FUZZ"):
    # Hypothesis would read all our modules for constants, which takes seconds in each run, and have
    # other examples after each change of any of them.
    providers._get_local_constants = lambda: providers._local_constants


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out modules of which the wanted run of `make test` has no test."""
    wanted = config.option.markexpr
    if wanted not in RUNS or not re.fullmatch(r"test_.*\.py", collection_path.name):
        return None
    return None if wanted in runs_of(collection_path) else True


# The modules, tests and parameters of a whole run are a million objects that stay: looking through
# them takes the collector seconds each time, and tests that count what is left open call it.
gc.disable()


def pytest_collection_finish() -> None:
    """Have the collector run from now on, and leave out what is there by now."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Leave out what a module's tests left too: the collector is called by hundreds of tests."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts clusters or pods, and what makes namespaces and mounts for a fake engine.

    The marks divide `make test` into runs beside each other; `make unit` leaves all of them out.
    """
    for path, tests in itertools.groupby(items, key=lambda item: item.path):
        parts = path.relative_to(HERE).parts
        possible = runs_of(path)
        for item in tests:
            marks = _marks(item, parts)
            for mark in sorted(marks):
                item.add_marker(mark)
            if run_of(marks) not in possible:
                raise pytest.UsageError(f"{item.nodeid}: its run of `make test` leaves out {path}")


def _marks(item: pytest.Item, parts: tuple[str, ...]) -> set[str]:
    fixtures = getattr(item, "fixturenames", ())
    has_plane, has_node = "control_plane" in fixtures, "whole_cluster" in fixtures
    shares_a_cluster = has_plane or has_node
    is_runtime = item.get_closest_marker("runtime") is not None
    own = directory_run(parts)
    marks = {
        "root": parts[0] == "engine" and "place" in fixtures,
        "below": own == BELOW,
        "server": own == SERVERS,
        "shared": shares_a_cluster,
        "plane": has_plane and not has_node,
        "whole": shares_a_cluster or own == CLUSTERS,
        "cluster": shares_a_cluster or is_runtime or own in (CLUSTERS, ENGINES),
    }
    return {mark for mark, is_set in marks.items() if is_set}


@pytest.fixture(scope="module", autouse=True)
def _small_reserve(request: pytest.FixtureRequest) -> Iterator[None]:
    """Stores of tests write no 12 MB for a disk that is full, but where that is tested.

    They were a tenth of the processor time of all tests without a cluster.
    """
    sqlite = sys.modules.get("moorage.apiserver.storage.sqlite")
    # Where backups and full disks are tested.
    kept = (HERE / "apiserver" / "storage", HERE / "cluster")
    if sqlite is None or any(request.path.is_relative_to(directory) for directory in kept):
        yield
        return
    defaults = sqlite.SqliteStore.__init__.__kwdefaults__
    before = defaults["reserve_bytes"]
    defaults["reserve_bytes"] = 4096
    yield
    defaults["reserve_bytes"] = before


@pytest.fixture(scope="module", autouse=True)
def _umask_stays() -> Iterator[None]:
    """A command that a test calls in this process changes it, for all tests after it."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Programs that tests interrupt inherit no ignored SIGINT, as a background job of a shell."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _programs_are_forks() -> Iterator[None]:
    """Clusters that this process starts import nothing: their programs are forks."""
    former = set_launcher(forks.launch)
    yield
    set_launcher(former)


@pytest.fixture(scope="session", autouse=True)
def _host_keeps_its_mounts() -> Iterator[None]:
    """Nothing under test may mount over, or unmount, a directory that the host itself uses."""
    before = _mounts_of_host()
    yield
    assert _mounts_of_host() == before


def _mounts_of_host() -> list[Mount]:
    system = (Path("/dev"), Path("/proc"), Path("/etc"), Path("/usr"))
    return [
        mount
        for mount in current_mounts()
        if any(mount.point.is_relative_to(directory) for directory in system)
    ]


@pytest.fixture
def removed_by_us(tmp_path: Path) -> Iterator[None]:
    """For tests that make trees which pytest cannot remove, being too deep for recursion."""
    yield
    for path in tmp_path.iterdir():
        remove_tree(path)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """API server, controllers and scheduler; nothing runs pods. Needs no root."""
    skip_without_kubectl()
    with running(tmp_path_factory.mktemp("plane") / "data", has_node=False) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def whole_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """A cluster with a node. Its classes `native` and `crun` work, `gvisor` where there is runsc,
    and `kata` does not.
    """
    skip_without_kubectl()
    skip_without_runtimes()
    with running(tmp_path_factory.mktemp("whole") / "data", node_name="n1") as cluster:
        cluster.apply(
            runtime_class("native", "runc"),
            runtime_class("crun", "crun"),
            runtime_class("gvisor", "gvisor"),
            runtime_class("kata", "kata-containers"),
        )
        yield cluster
