"""Objects of an attachment on kube-apiserver of any version: taken, kept as sent, and removed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moorage.api.clock import SystemClock
from moorage.attach.attachment import plan_attachment
from moorage.attach.detach_options import DetachOptions
from moorage.attach.detachment import detach, plan_detachment
from moorage.attach.manifests import objects
from moorage.attach.served_objects import ServedObjects, name_of
from moorage.attach.survey import Level
from moorage.attach.values import SchedulerValues, Values
from moorage.wire.client.config import load_kubeconfig
from moorage.wire.client.rest import Client
from tests.interchange.control_plane import real_api_server, start_control_plane
from tests.interchange.programs import programs, required

pytestmark = [pytest.mark.runtime, pytest.mark.slow, pytest.mark.timeout(600)]

_VALUES = Values(scheduler=SchedulerValues(enabled=True))


def test_what_is_attached_is_as_it_was_sent_and_is_detached(place: Path) -> None:
    paths = required("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler")
    with real_api_server(place, paths) as cluster, programs(place / "logs") as started:
        start_control_plane(started, paths, cluster.data_dir)
        asyncio.run(_attach_and_detach(cluster.kubeconfig))


async def _attach_and_detach(kubeconfig: Path) -> None:
    async with Client(load_kubeconfig(kubeconfig), user_agent="test") as client:
        plan = await plan_attachment(client, _VALUES)
        assert [one for one in plan.findings if one.level is Level.PROBLEM] == []
        served = ServedObjects(client)
        # No node runs the parts, and the webhook would not answer.
        sent = [obj for obj in objects(_VALUES) if "WebhookConfiguration" not in obj["kind"]]
        for obj in sent:
            await served.apply(obj)
        again = (await plan_attachment(client, _VALUES)).changing
        assert {name_of(change.obj) for change in again} == {
            "MutatingWebhookConfiguration moorage",
            "ValidatingWebhookConfiguration moorage",
        }
        assert [await served.apply(change.obj, is_dry_run=True) for change in again]
        left = await detach(client, SystemClock(), DetachOptions(said=print, timeout_s=120))
        assert left == []
        assert (await plan_detachment(client)).is_empty
