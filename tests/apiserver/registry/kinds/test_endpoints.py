"""Endpoints."""

from __future__ import annotations

from typing import Any

from tests.apiserver.registry.kinds.rows import rows
from tests.apiserver.registry.rules import creations

ADDRESS = [{"ip": "10.0.0.1"}]


def subset(**fields: Any) -> dict[str, Any]:
    return {"subsets": [{"addresses": ADDRESS, **fields}]}


test_creation = creations("Endpoints", cases=[
    (subset(ports=[{"port": 80}]), None),
    ({"subsets": [{"ports": [{"port": 80}]}]},
     "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"),
    ({"subsets": [{"addresses": [{"ip": "127.0.0.1"}]}]},
     'subsets[0].addresses[0].ip: Invalid value: "127.0.0.1": may not be in the loopback range '
     "(127.0.0.0/8, ::1/128)"),
    ({"subsets": [{"notReadyAddresses": [{"ip": "0.0.0.0"}]}]},
     'subsets[0].notReadyAddresses[0].ip: Invalid value: "0.0.0.0": may not be unspecified '
     "(0.0.0.0 or ::)"),
    ({"subsets": [{"addresses": [{"ip": "169.254.1.1"}]}]},
     'subsets[0].addresses[0].ip: Invalid value: "169.254.1.1": may not be in the link-local '
     "range (169.254.0.0/16, fe80::/10)"),
    ({"subsets": [{"addresses": [{"ip": "ff02::1"}]}]},
     'subsets[0].addresses[0].ip: Invalid value: "ff02::1": may not be in the link-local '
     "multicast range (224.0.0.0/24, ff02::/10)"),
    ({"subsets": [{"addresses": [{"ip": "224.0.0.9"}]}]},
     'subsets[0].addresses[0].ip: Invalid value: "224.0.0.9": may not be in the link-local '
     "multicast range (224.0.0.0/24, ff02::/10)"),
    ({"subsets": [{"addresses": [{"ip": "::ffff:127.0.0.1"}]}]},
     'subsets[0].addresses[0].ip: Invalid value: "::ffff:127.0.0.1": may not be in the '
     "loopback range (127.0.0.0/8, ::1/128)"),
    (subset(ports=[{"port": 0}]),
     "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"),
    (subset(ports=[{"port": 1}, {"port": 2, "name": "x"}]),
     "subsets[0].ports[0].name: Required value"),
    (subset(ports=[{"port": 1, "protocol": "X"}]),
     'subsets[0].ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", '
     '"UDP"'),
])  # fmt: skip


test_row = rows("Endpoints", cases=[
    ({}, ["x", "<none>", "90s"]),
    ({"subsets": [{"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                                "ports": [{"port": 80}]}]},
     ["x", "10.0.0.1:80,[fd00::1]:80", "90s"]),
])  # fmt: skip
