"""A certificate by kubectl: asked for, approved, fetched, used."""

from __future__ import annotations

import base64
import json
import subprocess
import uuid
from pathlib import Path
from typing import Any

from cryptography import x509

from tests.certificates import encoded, key_pem, request_pem
from tests.running import RunningCluster

CLIENT = "kubernetes.io/kube-apiserver-client"
SERVING = "kubernetes.io/kubelet-serving"


def ask(
    cluster: RunningCluster, request: bytes, signer: str = CLIENT, *usages: str, user: str = ""
) -> str:
    """Create a request; its name is returned."""
    name = f"r-{uuid.uuid4().hex[:8]}"
    body = request_body(name, request, signer, *(usages or ("client auth",)))
    how = ("--as", user, "--as-group", "system:nodes") if user else ()
    cluster.kubectl("create", "-f", "-", *how, stdin=json.dumps(body))
    return name


def request_body(name: str, request: bytes, signer: str, *usages: str) -> dict[str, Any]:
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": encoded(request),
            "signerName": signer,
            "usages": usages,
            "expirationSeconds": 3600,
        },
    }


def certificate_of(cluster: RunningCluster, name: str) -> bytes:
    path = "jsonpath={.status.certificate}"
    cluster.kubectl("wait", f"--for={path}", "--timeout=20s", f"csr/{name}")
    answer = cluster.kubectl("get", "csr", name, "-o", path)
    return base64.b64decode(answer.stdout)


def whoami(cluster: RunningCluster, directory: Path, certificate: bytes, name: str) -> Any:
    """What `kubectl auth whoami` says with that certificate instead of the administrator's."""
    (directory / "own.crt").write_bytes(certificate)
    (directory / "own.key").write_bytes(key_pem())
    text = cluster.kubeconfig.read_text()
    own = directory / "kubeconfig"
    own.write_text(text)
    environment = {**cluster.environment, "KUBECONFIG": str(own)}
    for arguments in (
        ["config", "set-credentials", name, f"--client-certificate={directory}/own.crt",
         f"--client-key={directory}/own.key", "--embed-certs"],
        ["config", "set-context", "--current", f"--user={name}"],
        ["auth", "whoami", "-o", "json"],
    ):  # fmt: skip
        done = subprocess.run(
            ["kubectl", *arguments], capture_output=True, text=True, timeout=60, env=environment,
            check=False,
        )  # fmt: skip
    return done


def test_an_approved_certificate_is_a_way_in(control_plane: RunningCluster, tmp_path: Path) -> None:
    name = ask(control_plane, request_pem("carol", "dev", "ops"))
    row = control_plane.kubectl("get", "csr", name, "--no-headers").stdout.split()
    assert row[0] == name
    assert row[2:] == [CLIENT, "kubernetes-admin", "60m", "Pending"]
    approved = control_plane.kubectl("certificate", "approve", name)
    assert f"certificatesigningrequest.certificates.k8s.io/{name} approved" in approved.stdout
    certificate = certificate_of(control_plane, name)
    assert "Approved,Issued" in control_plane.kubectl("get", "csr", name).stdout
    done = whoami(control_plane, tmp_path, certificate, "carol")
    user = json.loads(done.stdout)["status"]["userInfo"]
    assert (user["username"], user["groups"]) == ("carol", ["dev", "ops", "system:authenticated"])


def test_a_denied_request_gets_no_certificate(control_plane: RunningCluster) -> None:
    name = ask(control_plane, request_pem("mallory"))
    control_plane.kubectl("certificate", "deny", name)
    assert control_plane.get("csr", name)["status"]["conditions"][0]["type"] == "Denied"
    refused = control_plane.kubectl("certificate", "approve", name, fails=True)
    assert "is already Denied" in refused.stderr


def test_a_node_agent_gets_its_client_certificate_without_people(
    control_plane: RunningCluster,
) -> None:
    role = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"
    control_plane.kubectl(
        "create", "clusterrolebinding", "renewals", f"--clusterrole={role}", "--group=system:nodes"
    )
    agent = "system:node:n7"
    usages = ("digital signature", "client auth")
    request = request_pem(agent, "system:nodes")
    name = ask(control_plane, request, f"{CLIENT}-kubelet", *usages, user=agent)
    certificate = x509.load_pem_x509_certificate(certificate_of(control_plane, name))
    assert certificate.subject.rfc4514_string() == f"CN={agent},O=system:nodes"
    condition = control_plane.get("csr", name)["status"]["conditions"][0]
    assert condition["reason"] == "AutoApproved"
    control_plane.kubectl("delete", "clusterrolebinding", "renewals")


def test_a_new_node_agent_joins_with_a_bootstrap_token(control_plane: RunningCluster) -> None:
    token_id, key = "0a1b2c", "0123456789abcdef"
    literals = {
        "token-id": token_id,
        "token-secret": key,
        "usage-bootstrap-authentication": "true",
        "expiration": "2099-01-01T00:00:00Z",
    }
    control_plane.kubectl(
        "create", "secret", "generic", f"bootstrap-token-{token_id}", "-n", "kube-system",
        "--type=bootstrap.kubernetes.io/token",
        *(f"--from-literal={name}={value}" for name, value in literals.items()),
    )  # fmt: skip
    agents = "system:bootstrappers"
    approval = "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
    roles = {"bootstrap": "system:node-bootstrapper", "approval": approval}
    for name, role in roles.items():
        control_plane.kubectl(
            "create", "clusterrolebinding", name, f"--clusterrole={role}", f"--group={agents}"
        )
    server = control_plane.kubectl("config", "view", "--raw", "-o", "json").stdout
    cluster = json.loads(server)["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"])
    path = control_plane.data_dir / "bootstrap-ca.crt"
    path.write_bytes(authority)
    agent = "system:node:n9"
    body = request_body(
        "join", request_pem(agent, "system:nodes"), f"{CLIENT}-kubelet",
        "digital signature", "client auth",
    )  # fmt: skip
    control_plane.kubectl(
        "--kubeconfig=/dev/null", f"--server={cluster['server']}",
        f"--certificate-authority={path}", f"--token={token_id}.{key}", "create", "-f", "-",
        stdin=json.dumps(body),
    )  # fmt: skip
    certificate = x509.load_pem_x509_certificate(certificate_of(control_plane, "join"))
    assert certificate.subject.rfc4514_string() == f"CN={agent},O=system:nodes"
    spec = control_plane.get("csr", "join")["spec"]
    assert spec["username"] == f"system:bootstrap:{token_id}"
    assert agents in spec["groups"]
    for name in roles:
        control_plane.kubectl("delete", "clusterrolebinding", name)


def test_a_serving_certificate_is_no_way_in(control_plane: RunningCluster, tmp_path: Path) -> None:
    agent = "system:node:n8"
    request = request_pem(agent, "system:nodes", names=["n8.example.com"])
    usages = ("digital signature", "server auth")
    name = ask(control_plane, request, SERVING, *usages)
    control_plane.kubectl("certificate", "approve", name)
    done = whoami(control_plane, tmp_path, certificate_of(control_plane, name), "n8")
    assert done.returncode != 0
    assert agent not in done.stdout


def test_the_bundle_of_the_api_server_is_published(control_plane: RunningCluster) -> None:
    listed = control_plane.get(
        "clustertrustbundles",
        "--field-selector=spec.signerName=kubernetes.io/kube-apiserver-serving",
    )
    (bundle,) = listed["items"]
    authority = (control_plane.data_dir / "pki/ca.crt").read_text()
    assert bundle["spec"]["trustBundle"] == authority
