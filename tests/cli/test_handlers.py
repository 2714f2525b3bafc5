"""Handlers of a cluster on another's engine are those that the engine lists."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from moorage.cli.errors import CliError
from moorage.cli.handlers import told_handlers
from moorage.cluster.layout import Layout
from moorage.cluster.settings import save
from moorage.handlers import Handler
from tests.cluster.test_settings import SETTINGS
from tests.fake_crio import Behaviour, FakeCrio, serving

MACHINES = (Handler(handler="kata", runtime="kata-runtime", available=True, path="/usr/bin/kata"),)


def cluster_on(endpoint: str, root: Path) -> Layout:
    layout = Layout(root / "data")
    layout.root.mkdir()
    save(layout.settings, msgspec.structs.replace(SETTINGS, cri=endpoint, has_node=True))
    return layout


async def test_they_are_the_engines_in_order_and_none_of_this_machine(tmp_path: Path) -> None:
    async with serving(FakeCrio(Behaviour()), tmp_path) as endpoint:
        layout = cluster_on(endpoint, tmp_path)
        for _ in range(3):
            told = await told_handlers(layout, MACHINES)
            assert [each.handler for each in told.handlers] == ["", "crun", "runc", "runsc"]
            assert [each.default for each in told.handlers] == [True, False, False, False]


async def test_an_engine_that_is_away_is_said(tmp_path: Path) -> None:
    layout = cluster_on(f"unix://{tmp_path}/none.sock", tmp_path)
    with pytest.raises(CliError, match=r"none\.sock does not list its handlers"):
        await told_handlers(layout, MACHINES)
