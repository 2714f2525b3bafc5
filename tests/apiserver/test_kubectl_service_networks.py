"""Networks of cluster IPs by kubectl, with the controllers at work."""

from __future__ import annotations

import json

from tests.running import RunningCluster


def test_a_network_of_ones_own_from_its_creation_to_its_end(control_plane: RunningCluster) -> None:
    listed = control_plane.kubectl("get", "servicecidrs").stdout
    assert listed.split()[:4] == ["NAME", "CIDRS", "AGE", "kubernetes"]
    network = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "more"},
        "spec": {"cidrs": ["203.0.113.0/24"]},
    }
    control_plane.kubectl("create", "-f", "-", stdin=json.dumps(network))
    control_plane.kubectl("wait", "--for=condition=Ready", "--timeout=20s", "servicecidr/more")
    address = "203.0.113.10"
    control_plane.kubectl(
        "create", "service", "clusterip", "far", f"--clusterip={address}", "--tcp=80"
    )
    path = "jsonpath={.spec.parentRef.name}=far"
    control_plane.kubectl("wait", f"--for={path}", "--timeout=20s", f"ipaddress/{address}")
    row = control_plane.kubectl("get", "ipaddress", address, "--no-headers").stdout.split()
    assert row == [address, "services/default/far"]
    control_plane.kubectl("delete", "servicecidr", "more", "--wait=false")
    blocked = 'jsonpath={.status.conditions[?(@.type=="Ready")].reason}=Terminating'
    control_plane.kubectl("wait", f"--for={blocked}", "--timeout=20s", "servicecidr/more")
    control_plane.kubectl("delete", "service", "far")
    control_plane.kubectl("wait", "--for=delete", "--timeout=30s", "servicecidr/more")
    control_plane.kubectl("wait", "--for=delete", "--timeout=20s", f"ipaddress/{address}")
