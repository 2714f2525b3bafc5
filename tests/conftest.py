"""The clusters that tests share: one control plane alone, one with a node."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from moorage.linux.mounts import Mount, current_mounts
from moorage.linux.trees import remove_tree
from tests.running import (
    RunningCluster,
    running,
    runtime_class,
    skip_without_kubectl,
    skip_without_runtimes,
)

# A test run does the same each time; `make soak` lets Hypothesis look where it has not been, and
# `make unit` takes fewer examples.
# An example has no deadline: how long it takes depends on what else the machine does.
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=30)
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("random", deadline=None)
settings.load_profile("random" if os.environ.get("MOORAGE_FUZZ") else "steady")


_HERE = Path(__file__).parent
_WITHOUT_CLUSTERS = frozenset(
    path.name for path in _HERE.iterdir() if path.is_dir() and path.name not in ("cli", "cluster")
)


_MAY_HAVE_CLUSTERS = frozenset(
    ("admission", "apiserver", "cli", "clients", "cluster", "engine", "handlers", "interchange",
     "probing", "ui")
)  # fmt: skip
"""Directories in which a test may be marked `cluster`; runs of these collect no others."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out directories without clusters where only these are wanted: 9,000 tests less."""
    is_wanted = collection_path.name in _MAY_HAVE_CLUSTERS or not collection_path.is_dir()
    if collection_path.parent != _HERE or is_wanted:
        return None
    return True if config.option.markexpr.startswith("cluster") else None


# The modules, tests and parameters of a whole run are a million objects that stay: looking through
# them takes the collector seconds each time, and tests that count what is left open call it.
gc.disable()


def pytest_collection_finish() -> None:
    """Have the collector run from now on, and leave out what is there by now."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts clusters or pods, and what makes namespaces and mounts for a fake engine.

    `make test` runs everything else beside the clusters; `make unit` leaves both out.
    """
    for item in items:
        directory = item.path.relative_to(_HERE).parts[0]
        fixtures = set(getattr(item, "fixturenames", ()))
        shares_a_cluster = bool({"control_plane", "whole_cluster"} & fixtures)
        if directory == "engine" and "place" in fixtures:
            item.add_marker("root")
        is_alone = directory in _WITHOUT_CLUSTERS and not shares_a_cluster
        if not is_alone or item.get_closest_marker("runtime"):
            item.add_marker("cluster")
            if item.path.parent != _HERE and directory not in _MAY_HAVE_CLUSTERS:
                raise pytest.UsageError(
                    f"{item.nodeid}: no run of `make test` looks for clusters here"
                )
        if shares_a_cluster or item.path.parent == _HERE / "cluster" / "whole":
            item.add_marker("whole")


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Programs that tests interrupt inherit no ignored SIGINT, as a background job of a shell."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
