"""Progress of `moor attach`: each reason and each remedy is printed once."""

from __future__ import annotations

import pytest

from moorage.attach.progress import PartProgress, WaitReason
from moorage.cli.commands.attach import ProgressLines


def test_a_pull_that_fails_again_and_again_is_printed_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = ProgressLines()
    refused = WaitReason("ErrImagePull: no such host", "push the image")
    backs_off = WaitReason("ImagePullBackOff: Back-off pulling image", "push the image")
    for _ in range(3):
        for reason in (refused, backs_off):
            progress.show([PartProgress("webhook", 2, 0, reasons=(reason,))])
    progress.show([PartProgress("controllers", 1, 0, reasons=(refused,))])
    assert capsys.readouterr().out.splitlines() == [
        "webhook: 0 of 2 pods are ready",
        "  ErrImagePull: no such host",
        "  → push the image",
        "  ImagePullBackOff: Back-off pulling image",
        "controllers: 0 of 1 pods are ready",
        "  ErrImagePull: no such host",
        "  → push the image",
    ]
