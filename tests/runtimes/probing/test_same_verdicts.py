"""Both carriers come to one verdict on a handler, whatever user the probes' image names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.cluster.images.archive import Image, write_archive
from moorage.cluster.images.building import catalogue
from moorage.engine.image_layout import encode
from moorage.runtimes.probing import Outcome, ProbeCarrier
from moorage.runtimes.probing.evidence import Evidence
from moorage.runtimes.probing.host import read_host
from moorage.runtimes.probing.pod_carrier import PodCarrier
from moorage.runtimes.probing.programs import PROBE_IMAGE
from moorage.runtimes.probing.running import run_plain, run_suite
from moorage.runtimes.probing.verdicts import READINGS, findings
from moorage.wire.client.config import load_kubeconfig
from moorage.wire.client.rest import Client
from tests.running import RunningCluster
from tests.runtimes.probing.carriers import OWNER, cri_carrier

pytestmark = [pytest.mark.runtime, pytest.mark.slow, pytest.mark.timeout(400)]

_IMAGE = "moorage.local/probe-of-a-user:1"


class ImageOfAUser(Image):
    """An image whose programs run as a user of its own, in a directory of its own."""

    @property
    def configuration(self) -> bytes:
        document = json.loads(super().configuration)
        document["config"] |= {"User": "65532:65532", "WorkingDir": "/tmp", "Env": ["PATH=/none"]}
        return encode(document)


@pytest.fixture
def image(whole_cluster: RunningCluster, tmp_path: Path) -> Iterator[str]:
    """The probes' image as the add-on's is: with a user."""
    busybox, catatonit = Path("/bin/busybox"), Path("/usr/bin/catatonit")
    images = asyncio.run(catalogue(busybox, catatonit if catatonit.exists() else None))
    (probe,) = [image for image in images if image.name == PROBE_IMAGE]
    archive = tmp_path / "image.tar"
    archive.write_bytes(
        write_archive([ImageOfAUser(name=_IMAGE, platform=probe.platform, layers=probe.layers)])
    )
    whole_cluster.moor("image", "load", str(archive))
    yield _IMAGE
    whole_cluster.moor("image", "remove", _IMAGE)


async def _evidence(carrier: ProbeCarrier, handler: str) -> Evidence:
    host = read_host()
    plain = await run_plain(carrier, handler, host)
    return await run_suite(carrier, handler, host, plain)


async def test_carriers_agree_feature_by_feature(
    whole_cluster: RunningCluster, image: str, tmp_path: Path
) -> None:
    settings = json.loads((whole_cluster.data_dir / "cluster.json").read_text())
    endpoint = f"unix:///run/moorage/{settings['cluster_id']}/engine.sock"
    async with cri_carrier(endpoint, tmp_path) as sandboxes:
        by_engine = await _evidence(sandboxes, "crun")
    config = load_kubeconfig(whole_cluster.kubeconfig)
    async with Client(config, user_agent="tests") as client:
        pods = PodCarrier(client, node="n1", owner=OWNER, image=image)
        by_pods = await _evidence(pods, "crun")
        await pods.clean()
    not_tried = {
        name for name, result in by_pods.results.items() if result.outcome is Outcome.UNSUPPORTED
    }
    compared = {name for name, reading in READINGS.items() if not_tried.isdisjoint(reading.probes)}
    assert len(compared) > 90
    engine, pod = findings(by_engine), findings(by_pods)
    different = {
        name: (engine[name], pod[name])
        for name in compared
        if engine[name].state != pod[name].state
    }
    assert different == {}
