"""Ages, and the cells of every kind but pods."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.clock import parse_time
from moorage.registry.columns.ages import age, duration_text
from moorage.registry.columns.shortening import shortened
from moorage.registry.kind import Printer
from moorage.registry.kinds import STORED_KINDS

CREATED = "2026-01-01T00:00:00Z"
NOW = parse_time(CREATED).timestamp() + 90
PRINTERS = {kind.name: kind.printer for kind in STORED_KINDS if kind.printer is not None}
M, H, D, Y = 60, 3600, 86400, 365 * 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"), (-1, "0s"), (0, "0s"), (0.9, "0s"), (119, "119s"), (120, "2m"),
        (150, "2m30s"), (10 * M - 1, "9m59s"), (10 * M, "10m"), (3 * H - 1, "179m"), (3 * H, "3h"),
        (3 * H + 20 * M, "3h20m"), (8 * H - 1, "7h59m"), (8 * H, "8h"), (48 * H - 1, "47h"),
        (48 * H, "2d"), (2 * D + 5 * H, "2d5h"), (8 * D - 1, "7d23h"), (8 * D, "8d"),
        (2 * Y - 1, "729d"), (2 * Y, "2y"), (2 * Y + 40 * D, "2y40d"), (8 * Y, "8y"),
        (9 * Y + D, "9y"),
    ],
)  # fmt: skip
def test_how_long_ago(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@given(st.floats(0, 20 * Y), st.floats(0, 20 * Y))
def test_what_is_older_is_never_said_to_be_younger(left: float, right: float) -> None:
    def told(text: str) -> int:
        total, number = 0, ""
        for char in text:
            if char.isdigit():
                number += char
            else:
                total += int(number) * {"s": 1, "m": M, "h": H, "d": D, "y": Y}[char]
                number = ""
        return total

    low, high = sorted((left, right))
    assert told(duration_text(low)) <= told(duration_text(high))
    assert told(duration_text(high)) <= high


@pytest.mark.parametrize("timestamp", [None, ""])
def test_no_time_is_an_unknown_age(timestamp: str | None) -> None:
    assert age(timestamp, NOW) == "<unknown>"


def test_long_lists_are_cut() -> None:
    assert shortened([]) == ""
    assert shortened(["a", "b", "c"]) == "a,b,c"
    assert shortened(["a", "b", "c", "d", "e"]) == "a,b,c + 2 more..."


META = {"metadata": {"name": "x", "creationTimestamp": CREATED}}
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
NODE_INFO = {
    "kubeletVersion": "v1.36.0", "osImage": "Debian", "kernelVersion": "6.1",
    "architecture": "amd64", "containerRuntimeVersion": "containerd://2.1",
}  # fmt: skip
TEMPLATE = {"spec": {"containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j"}]}}
WORKLOAD = {"replicas": 3, "selector": {"matchLabels": {"app": "w"}}, "template": TEMPLATE}
PORT = {"port": 80, "protocol": "TCP"}


@pytest.mark.parametrize(
    ("kind", "fields", "cells"),
    [
        ("RuntimeClass", {"handler": "runsc"}, ["x", "runsc", "90s"]),
        ("Namespace", {"status": {"phase": "Active"}}, ["x", "Active", "90s"]),
        ("ConfigMap", {"data": {"a": "1"}, "binaryData": {"b": ""}}, ["x", 2, "90s"]),
        ("Secret", {"type": "Opaque", "data": {"a": ""}}, ["x", "Opaque", 1, "90s"]),
        ("ServiceAccount", {}, ["x", "90s"]),
        ("Lease", {"spec": {"holderIdentity": "me"}}, ["x", "me", "90s"]),
        ("PriorityClass", {"value": 7, "globalDefault": True, "preemptionPolicy": "Never"},
         ["x", 7, True, "90s", "Never"]),
        ("Role", {}, ["x", CREATED]),
        ("RoleBinding", {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
            {"kind": "User", "name": "u"}, {"kind": "User", "name": "v"},
            {"kind": "Group", "name": "g"},
            {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]},
         ["x", "Role/r", "90s", "u, v", "g", "n/s"]),
        ("Node", {"status": {**READY, "nodeInfo": NODE_INFO, "addresses": [
            {"type": "InternalIP", "address": "10.0.0.1"}]}},
         ["x", "Ready", "<none>", "90s", "v1.36.0", "10.0.0.1", "<none>", "Debian", "6.1 (amd64)",
          "containerd://2.1"]),
        ("Deployment", {"spec": WORKLOAD, "status": {
            "readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1}},
         ["x", "2/3", 3, 1, "90s", "a,b", "i:1,j", "app=w"]),
        ("ReplicaSet", {"spec": WORKLOAD, "status": {"replicas": 3, "readyReplicas": 2}},
         ["x", 3, 3, 2, "90s", "a,b", "i:1,j", "app=w"]),
        ("Service", {"spec": {"type": "ClusterIP", "clusterIPs": ["10.0.0.1"], "ports": [PORT]}},
         ["x", "ClusterIP", "10.0.0.1", "<none>", "80/TCP", "90s", "<none>"]),
        ("Service", {"spec": {"type": "NodePort", "clusterIPs": ["10.0.0.1"],
                              "ports": [{**PORT, "nodePort": 30000}, {**PORT, "port": 81}],
                              "selector": {"b": "2", "a": "1"}}},
         ["x", "NodePort", "10.0.0.1", "<none>", "80:30000/TCP,81/TCP", "90s", "a=1,b=2"]),
        ("Service", {"spec": {"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"]}},
         ["x", "LoadBalancer", "10.0.0.1", "<pending>", "<none>", "90s", "<none>"]),
        ("Service", {"spec": {"type": "LoadBalancer", "externalIPs": ["9.9.9.9"]},
                     "status": {"loadBalancer": {"ingress": [{"hostname": "lb"}]}}},
         ["x", "LoadBalancer", "<none>", "lb,9.9.9.9", "<none>", "90s", "<none>"]),
        ("Service", {"spec": {"type": "ExternalName", "externalName": "a.b"}},
         ["x", "ExternalName", "<none>", "a.b", "<none>", "90s", "<none>"]),
        ("Endpoints", {}, ["x", "<none>", "90s"]),
        ("Endpoints", {"subsets": [{"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                                    "ports": [{"port": 80}]}]},
         ["x", "10.0.0.1:80,[fd00::1]:80", "90s"]),
        ("EndpointSlice", {"addressType": "IPv4", "ports": [{"port": 80}, {"name": "any"}],
                           "endpoints": [{"addresses": ["10.0.0.1"]}]},
         ["x", "IPv4", "80,any", "10.0.0.1", "90s"]),
        ("EndpointSlice", {"addressType": "IPv4"}, ["x", "IPv4", "<unset>", "<unset>", "90s"]),
        ("Event", {"type": "Normal", "reason": "R", "message": "m\n", "lastTimestamp": CREATED,
                   "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "f"},
                   "source": {"component": "c", "host": "h"}, "firstTimestamp": CREATED,
                   "count": 4},
         ["90s", "Normal", "R", "pod/p", "f", "c, h", "m", "90s", 4, "x"]),
        ("Event", {"eventTime": CREATED, "reportingComponent": "rc", "involvedObject": {}},
         ["90s", "", "", "", "", "rc", "", "90s", 1, "x"]),
    ],
)  # fmt: skip
def test_a_row(kind: str, fields: dict[str, Any], cells: list[Any]) -> None:
    assert PRINTERS[kind].cells({**META, **fields}, NOW) == cells


@pytest.mark.parametrize(
    ("labels", "spec", "conditions", "status", "roles"),
    [
        ({}, {}, [], "Unknown", "<none>"),
        ({}, {"unschedulable": True}, READY["conditions"], "Ready,SchedulingDisabled", "<none>"),
        ({}, {}, [{"type": "Ready", "status": "Unknown"}], "NotReady", "<none>"),
        ({"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": ""}, {},
         READY["conditions"], "Ready", "control-plane,worker"),
        ({"kubernetes.io/role": "old"}, {}, READY["conditions"], "Ready", "old"),
    ],
)  # fmt: skip
def test_a_nodes_status_and_roles(
    labels: dict[str, str],
    spec: dict[str, Any],
    conditions: list[dict[str, str]],
    status: str,
    roles: str,
) -> None:
    node = {"metadata": {"name": "n", "labels": labels}, "spec": spec,
            "status": {"conditions": conditions}}  # fmt: skip
    assert PRINTERS["Node"].cells(node, NOW)[1:3] == [status, roles]


@pytest.mark.parametrize("printer", PRINTERS.values(), ids=PRINTERS)
def test_a_bookmarks_row_has_all_its_cells(printer: Printer) -> None:
    assert len(printer.cells({"metadata": {"resourceVersion": "1"}}, 0.0)) == len(printer.columns)


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("Pod", "Name Ready Status Restarts Age | IP Node Nominated_Node Readiness_Gates"),
        ("Node", "Name Status Roles Age Version | Internal-IP External-IP OS-Image Kernel-Version "
         "Container-Runtime"),
        ("RuntimeClass", "Name Handler Age |"),
        ("Deployment", "Name Ready Up-to-date Available Age | Containers Images Selector"),
        ("ReplicaSet", "Name Desired Current Ready Age | Containers Images Selector"),
        ("Service", "Name Type Cluster-IP External-IP Port(s) Age | Selector"),
        ("Event", "Last_Seen Type Reason Object Message | Subobject Source First_Seen Count Name"),
        ("RoleBinding", "Name Role Age | Users Groups ServiceAccounts"),
        ("PriorityClass", "Name Value Global-Default Age PreemptionPolicy |"),
        ("ClusterRole", "Name Created_At |"),
    ],
)  # fmt: skip
def test_columns_narrow_and_wide(kind: str, columns: str) -> None:
    printer = PRINTERS[kind]
    shown = [
        " ".join(c.name.replace(" ", "_") for c in printer.columns if c.priority == priority)
        for priority in (0, 1)
    ]
    assert " | ".join(shown).rstrip() == columns
