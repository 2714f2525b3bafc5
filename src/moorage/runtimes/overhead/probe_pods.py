"""Probe pods of a measurement, and their temporary class, as manifests.

The class has the handler and no overhead, so that a declared one does not change what is measured.
A container holds its payload as a file in memory, whose size is exact under every runtime; it then
sleeps, or works in cycles of a fixed number of steps and prints the number of each. Pods end by
themselves after a deadline, should no one be left to delete them. Pure.
"""

from __future__ import annotations

from typing import Any

from moorage.api.meta import Raw
from moorage.api.runtime_group import GROUP, MEASUREMENT_LABEL
from moorage.runtimeclass.overhead_estimates import Activity
from moorage.runtimes.overhead.options import MeasureOptions, Shape

EXPIRES_ANNOTATION = f"{GROUP}/expires"
"""Annotation of a temporary class: when a later measurement may delete it, as RFC 3339 text."""

READY_LINE = "ready"
CYCLE_WORD = "cycle"

_BLOCK_BYTES = 65536
_PAYLOAD = "/payload"

_HOLD = (
    'if [ "$BLOCKS" -gt 0 ]; then '
    f'dd if=/dev/zero of="{_PAYLOAD}/$NAME" bs={_BLOCK_BYTES} count="$BLOCKS" 2>/dev/null '
    "|| exit 1; fi; "
    f"echo {READY_LINE}; "
)
_SCRIPTS = {
    Activity.IDLE: f"{_HOLD} while :; do sleep 3600; done",
    Activity.BUSY: f"{_HOLD} n=0; while :; do i=0; "
    "while [ $i -lt 500 ]; do i=$((i+1)); done; "
    f"n=$((n+1)); echo {CYCLE_WORD} $n; sleep 0.1; done",
}


def class_manifest(name: str, run: str, handler: str, scheduling: Raw | None, expires: str) -> Raw:
    """Return the temporary class of a handler, with the scheduling rules of its real class."""
    manifest: Raw = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {
            "name": name,
            "labels": {MEASUREMENT_LABEL: run},
            "annotations": {EXPIRES_ANNOTATION: expires},
        },
        "handler": handler,
    }
    if scheduling:
        manifest["scheduling"] = scheduling
    return manifest


def pod_manifest(
    name: str,
    run: str,
    class_name: str,
    shape: Shape,
    activity: Activity,
    options: MeasureOptions,
    deadline_s: int,
) -> Raw:
    """Return a probe pod."""
    blocks = -(-shape.payload_bytes // _BLOCK_BYTES)
    spec: dict[str, Any] = {
        "runtimeClassName": class_name,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "activeDeadlineSeconds": deadline_s,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "volumes": [{"name": "payload", "emptyDir": {"medium": "Memory"}}],
        "containers": [
            _container(f"c{number}", blocks, activity, options.image)
            for number in range(shape.containers)
        ],
    }
    if options.node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": options.node}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": options.namespace,
            "labels": {MEASUREMENT_LABEL: run},
        },
        "spec": spec,
    }


def payload_bytes(shape: Shape) -> int:
    """Return the memory that a pod's containers hold together, in whole blocks."""
    return shape.containers * -(-shape.payload_bytes // _BLOCK_BYTES) * _BLOCK_BYTES


def _container(name: str, blocks: int, activity: Activity, image: str) -> Raw:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", _SCRIPTS[activity]],
        "env": [{"name": "NAME", "value": name}, {"name": "BLOCKS", "value": str(blocks)}],
        "volumeMounts": [{"name": "payload", "mountPath": _PAYLOAD}],
    }
