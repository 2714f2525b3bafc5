"""Plans of engines, with everything below a directory of the test's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from moorage.cluster.engine.paths import ClusterEnginePaths
from moorage.cluster.engine.plan import EnginePlan, plan_engine
from moorage.cluster.layout import Layout
from tests.cluster.hosts import a_host
from tests.cluster.test_settings import SETTINGS


def engine_paths(root: Path) -> ClusterEnginePaths:
    return ClusterEnginePaths(root / "data", root / "shared" / "run")


def a_plan(root: Path) -> EnginePlan:
    """A plan of an engine that finds no runtime and touches nothing but the directory."""
    plan = plan_engine(Layout(root), SETTINGS, a_host(path="/nowhere"))
    paths = engine_paths(root)
    options = replace(
        plan.options,
        paths=paths.engine,
        socket=paths.socket,
        handler_directories=(),
        spare_networks=0,
    )
    return replace(plan, paths=paths, options=options)
