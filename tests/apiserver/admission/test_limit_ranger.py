"""LimitRanges: defaults of containers, bounds for containers, pods and claims."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.errors import ForbiddenError
from moorage.api.quotas import LimitRange
from moorage.apiserver.admission.limit_ranger import ANNOTATION, LimitRanger
from moorage.apiserver.registry.kinds.persistentvolumeclaim import PERSISTENT_VOLUME_CLAIM
from moorage.apiserver.registry.kinds.pod import POD
from tests.apiserver.admission.writes import admit, pod, write

REFUSED = 'pods "p" is forbidden: '


def plugin(*ranges: list[dict[str, Any]]) -> LimitRanger:
    typed = [msgspec.convert({"spec": {"limits": items}}, LimitRange) for items in ranges]
    return LimitRanger(lambda namespace: typed if namespace == "default" else [])


def container(name: str = "c", *, limits: Any = None, requests: Any = None) -> dict[str, Any]:
    resources = {"requests": requests, "limits": limits}
    return {
        "name": name, "image": "i",
        "resources": {key: value for key, value in resources.items() if value},
    }  # fmt: skip


def resources(spec: dict[str, Any], index: int = 0, field: str = "containers") -> Any:
    return spec[field][index].get("resources")


def test_defaults_are_set_and_said() -> None:
    item = {"type": "Container", "default": {"cpu": "2", "memory": "2Gi"},
            "defaultRequest": {"cpu": "1", "memory": "1Gi"}}  # fmt: skip
    given = pod({
        "containers": [container("a"), container("b", requests={"cpu": "3"},
                                                 limits={"cpu": "4", "memory": "5Gi"})],
        "initContainers": [container("i", requests={"cpu": "1", "memory": "1Gi"})],
    })  # fmt: skip
    after = admit(plugin([item]), write(POD, given))
    spec = after["spec"]
    assert resources(spec) == {
        "requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}
    }  # fmt: skip
    assert resources(spec, 1) == {
        "requests": {"cpu": "3", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "5Gi"}
    }  # fmt: skip
    assert resources(spec, 0, "initContainers")["limits"] == {"cpu": "2", "memory": "2Gi"}
    assert after["metadata"]["annotations"] == {ANNOTATION: (
        "LimitRanger plugin set: cpu, memory request for container a; cpu, memory limit for "
        "container a; memory request for container b; cpu, memory limit for init container i"
    )}  # fmt: skip


def test_without_defaults_a_pod_is_as_it_was() -> None:
    given = pod()
    limit_range = plugin([{"type": "Pod", "max": {"cpu": "1"}}], [])
    attributes = write(POD, given)
    limit_range.mutate(attributes)
    assert attributes.obj == pod()
    assert admit(plugin(), write(POD, pod())) == pod()


def test_a_second_run_sets_nothing_more() -> None:
    limit_range = plugin([{"type": "Container", "default": {"cpu": "2"}}])
    attributes = write(POD, pod())
    first = admit(limit_range, attributes)["metadata"]["annotations"]
    assert admit(limit_range, attributes)["metadata"]["annotations"] == first


@pytest.mark.parametrize(
    ("bounds", "requests", "limits", "says"),
    [
        ({"min": {"cpu": "1"}}, {"cpu": "1"}, {}, None),
        ({"min": {"cpu": "1"}}, {}, {},
         "minimum cpu usage per Container is 1.  No request is specified"),
        ({"min": {"cpu": "1"}}, {"cpu": "500m"}, {},
         "minimum cpu usage per Container is 1, but request is 500m"),
        ({"min": {"cpu": "1"}}, {"cpu": "1"}, {"cpu": "900m"},
         "minimum cpu usage per Container is 1, but limit is 900m"),
        ({"max": {"cpu": "1"}}, {"cpu": "1"}, {"cpu": "1"}, None),
        ({"max": {"cpu": "1"}}, {"cpu": "1"}, {},
         "maximum cpu usage per Container is 1.  No limit is specified"),
        ({"max": {"cpu": "1"}}, {"cpu": "1"}, {"cpu": "1001m"},
         "maximum cpu usage per Container is 1, but limit is 1001m"),
        ({"max": {"cpu": "1"}}, {"cpu": "2"}, {"cpu": "1"},
         "maximum cpu usage per Container is 1, but request is 2"),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, {"cpu": "1"}, {"cpu": "2"}, None),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, {}, {"cpu": "2"},
         "cpu max limit to request ratio per Container is 2, but no request is specified or "
         "request is 0"),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, {"cpu": "1"}, {},
         "cpu max limit to request ratio per Container is 2, but no limit is specified or limit "
         "is 0"),
        ({"maxLimitRequestRatio": {"cpu": "1500m"}}, {"cpu": "1"}, {"cpu": "2"},
         "cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.000000"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_bounds_of_containers(
    bounds: dict[str, Any], requests: Any, limits: Any, says: str | None, field: str
) -> None:
    good = container(requests={"cpu": "1"}, limits={"cpu": "1"})
    given = pod({"containers": [good], field: [container(requests=requests, limits=limits)]})
    limit_range = plugin([{"type": "Container", **bounds}])
    if says is None:
        admit(limit_range, write(POD, given))
        return
    with pytest.raises(ForbiddenError) as refusal:
        admit(limit_range, write(POD, given))
    assert refusal.value.message == REFUSED + says


def test_bounds_of_pods_are_about_the_sum_without_the_overhead() -> None:
    limit_range = plugin([{"type": "Pod", "max": {"cpu": "2"}}])
    stated = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    two = {"containers": [container("a", **stated), container("b", **stated)]}
    admit(limit_range, write(POD, pod({**two, "overhead": {"cpu": "1"}})))
    three = {"containers": [*two["containers"], container("d", **stated)]}
    with pytest.raises(ForbiddenError, match="usage per Pod is 2, but limit is 3"):
        admit(limit_range, write(POD, pod(three)))


def test_all_complaints_are_listed_once() -> None:
    limit_range = plugin([{"type": "Container", "min": {"cpu": "1"}, "max": {"memory": "1Gi"}}])
    given = pod({"containers": [container("a"), container("b")]})
    with pytest.raises(ForbiddenError) as refusal:
        admit(limit_range, write(POD, given))
    assert refusal.value.message == (
        f"{REFUSED}[minimum cpu usage per Container is 1.  No request is specified, maximum memory "
        "usage per Container is 1Gi.  No limit is specified]"
    )


@pytest.mark.parametrize(
    ("bounds", "storage", "says"),
    [
        ({"min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}, "2Gi", None),
        ({"min": {"storage": "1Gi"}}, "1Mi",
         "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"),
        ({"min": {"storage": "1Gi"}}, None,
         "minimum storage usage per PersistentVolumeClaim is 1Gi.  No request is specified"),
        ({"max": {"storage": "1Gi"}}, "2Gi",
         "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"),
        ({"max": {"storage": "1Gi"}}, None,
         "maximum storage usage per PersistentVolumeClaim is 1Gi.  No request is specified"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_bounds_of_claims(
    bounds: dict[str, Any], storage: str | None, says: str | None, operation: str
) -> None:
    requests = {"storage": storage} if storage else {}
    claim = {"metadata": {"name": "c"}, "spec": {"resources": {"requests": requests}}}
    old = claim if operation == "UPDATE" else None
    about = write(PERSISTENT_VOLUME_CLAIM, claim, operation=operation, old=old)
    limit_range = plugin([{"type": "PersistentVolumeClaim", **bounds}, {"type": "Pod"}])
    if says is None:
        admit(limit_range, about)
        return
    with pytest.raises(ForbiddenError) as refusal:
        admit(limit_range, about)
    assert refusal.value.message == f'persistentvolumeclaims "c" is forbidden: {says}'


def test_updates_of_pods_and_claims_that_end_are_not_checked() -> None:
    pods = plugin([{"type": "Container", "min": {"cpu": "1"}, "default": {"cpu": "1"}}])
    assert admit(pods, write(POD, pod(), operation="UPDATE", old=pod())) == pod()
    claims = plugin([{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}}])
    claim = {"metadata": {"name": "c", "deletionTimestamp": "now"}, "spec": {}}
    admit(claims, write(PERSISTENT_VOLUME_CLAIM, claim, operation="UPDATE", old=claim))
