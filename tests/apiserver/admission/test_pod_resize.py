"""A resize beyond what the pod's node has is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.errors import ForbiddenError
from moorage.api.nodes import Node
from moorage.apiserver.admission.pod_resize import PodResizeValidator
from moorage.apiserver.registry.kinds.pod import POD
from tests.apiserver.admission.writes import admit, pod, write

REFUSED = 'pods "p" is forbidden: '


def plugin(**labels: str) -> PodResizeValidator:
    own = {key.replace("_", "/"): value for key, value in labels.items()}
    status = {"allocatable": {"cpu": "4", "memory": "4Gi"}}
    node = msgspec.convert({"metadata": {"name": "n", "labels": own}, "status": status}, Node)
    return PodResizeValidator({"n": node}.get)


def asking(node: str = "n", **requests: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": requests}}],
                            "overhead": {"cpu": "500m"}}  # fmt: skip
    return pod(spec | ({"nodeName": node} if node else {}))


@pytest.mark.parametrize(
    "new",
    [
        asking(cpu="3500m", memory="4Gi"),
        asking(node="", cpu="8"),
        asking(cpu="1"),
    ],
)
def test_what_the_node_has_is_admitted(new: dict[str, Any]) -> None:
    old = asking(node=new["spec"].get("nodeName", ""), cpu="1")
    admit(plugin(), write(POD, new, old=old, operation="UPDATE", subresource="resize"))


@pytest.mark.parametrize(
    ("new", "labels", "says", "cause"),
    [
        (asking(cpu="4"), {}, "node didn't have enough allocatable resources: cpu, requested: 4500,"
         " allocatable: 4000", "NodeCapacity"),
        (asking(cpu="4", memory="8Gi"), {}, "node didn't have enough allocatable resources: cpu, "
         "requested: 4500, allocatable: 4000; memory, requested: 8589934592, allocatable: "
         "4294967296", "NodeCapacity"),
        (asking(cpu="2"), {"kubernetes.io_os": "windows"}, "pod resize is only supported on linux "
         'nodes, node "n" is "windows"', "UnsupportedPlatform"),
        (asking(node="gone", cpu="2"), {}, 'node "gone" not found', None),
    ],
)  # fmt: skip
def test_what_no_node_can_give_is_refused(
    new: dict[str, Any], labels: dict[str, str], says: str, cause: str | None
) -> None:
    old = asking(node=new["spec"]["nodeName"], cpu="1")
    resize = write(POD, new, old=old, operation="UPDATE", subresource="resize")
    with pytest.raises(ForbiddenError) as caught:
        admit(plugin(**labels), resize)
    assert caught.value.message == REFUSED + says
    causes = (caught.value.details or {}).get("causes")
    assert causes == (None if cause is None else [{"reason": cause}])
