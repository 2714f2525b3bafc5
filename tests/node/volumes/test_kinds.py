from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.volumes import Volume
from moorage.node.volumes.kinds import MOUNTED, kind_of


@pytest.mark.parametrize(
    ("source", "kind", "is_mounted"),
    [
        ({}, "emptyDir", True),
        ({"emptyDir": {}}, "emptyDir", True),
        ({"hostPath": {"path": "/x"}}, "hostPath", True),
        ({"configMap": {"name": "x"}}, "configMap", True),
        ({"secret": {"secretName": "x"}}, "secret", True),
        ({"downwardAPI": {}}, "downwardAPI", True),
        ({"projected": {}}, "projected", True),
        ({"image": {"reference": "x"}}, "image", True),
        ({"persistentVolumeClaim": {"claimName": "x"}}, "persistentVolumeClaim", True),
        ({"ephemeral": {}}, "ephemeral", True),
        ({"nfs": {"server": "x"}}, "nfs", False),
        ({"scaleIO": {}}, "scaleIO", False),
    ],
)
def test_kinds_are_named_as_the_api_names_them(
    source: dict[str, Any], kind: str, is_mounted: bool
) -> None:
    volume_kind = kind_of(msgspec.convert({"name": "v", **source}, Volume))
    assert volume_kind == kind
    assert (volume_kind in MOUNTED) is is_mounted
