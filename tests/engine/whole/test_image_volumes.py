"""Images as volumes of a container."""

from __future__ import annotations

import pytest

from moorage.wire.cri import pb
from tests.engine.whole.engines import BUSYBOX, Caller

pytestmark = [pytest.mark.runtime]

SLEEP = ("sleep", "1000")


async def test_the_status_says_which_image_a_volume_is(caller: Caller) -> None:
    pulled = await caller.cri.call(
        caller.cri.images.ImageStatus, pb.ImageStatusRequest(image=pb.ImageSpec(image=BUSYBOX))
    )
    volume = pb.Mount(container_path="/v", readonly=True, image=pb.ImageSpec(image=BUSYBOX))
    main = await caller.run(await caller.run_pod(), *SLEEP, mounts=[volume])
    assert b"busybox" in (await caller.exec(main, "ls", "/v/bin")).stdout
    (mount,) = (await caller.status(main)).mounts
    assert (mount.image.image, mount.image.image_ref) == (BUSYBOX, pulled.image.id)
    assert mount.host_path == ""
