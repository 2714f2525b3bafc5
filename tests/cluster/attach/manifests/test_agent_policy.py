"""Admission policies of the runtime agent, on our API server: a hostile pod has its node alone."""

from __future__ import annotations

from moorage.client.config import load_kubeconfig
from tests.cluster.attach.hostile_agent import assert_confined
from tests.running import RunningCluster


async def test_a_hostile_agent_changes_what_is_of_its_own_node_alone(
    control_plane: RunningCluster,
) -> None:
    await assert_confined(load_kubeconfig(control_plane.kubeconfig))
