"""CertificateSigningRequests over HTTP: what the conformance test of the Certificates API does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.apiserver.access import grant
from tests.apiserver.running_server import Running, serving
from tests.certificates import certificate_pem, encoded, request_pem

ROOT = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNER = "example.com/e2e"
MERGE = {"Content_Type": "application/merge-patch+json"}


def csr(signer: str = SIGNER, **meta: Any) -> dict[str, Any]:
    spec = {
        "request": encoded(request_pem("e2e.example.com", names=["e2e.example.com"])),
        "signerName": signer,
        "expirationSeconds": 3600,
        "usages": ["digital signature", "key encipherment", "server auth"],
    }
    return {"metadata": meta or {"generateName": "e2e-example-csr-"}, "spec": spec}


async def asked(server: Running, method: str, path: str, body: Any = None, **how: Any) -> Any:
    answer = await server.ask(method, path, body, **how)
    assert answer.status in (200, 201), answer.text
    return answer.json


async def test_operations_of_the_conformance_test(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        for _ in range(3):
            created = await asked(server, "POST", ROOT, csr())
        path = f"{ROOT}/{created['metadata']['name']}"
        assert created["spec"]["username"] == "admin"
        assert "system:masters" in created["spec"]["groups"]
        selected = f"{ROOT}?fieldSelector=spec.signerName%3D{SIGNER}"
        assert len((await asked(server, "GET", selected))["items"]) == 3

        note = {"metadata": {"annotations": {"patched": "true"}}}
        patched = await asked(server, "PATCH", path, note, **MERGE)
        patched["metadata"]["annotations"]["updated"] = "true"
        patched["spec"]["username"] = "mallory"
        updated = await asked(server, "PUT", path, patched)
        assert updated["metadata"]["annotations"] == {"patched": "true", "updated": "true"}
        assert updated["spec"]["username"] == "admin"

        approval = await asked(server, "GET", f"{path}/approval")
        assert (approval["kind"], approval["metadata"]["uid"]) == (
            "CertificateSigningRequest", created["metadata"]["uid"],
        )  # fmt: skip
        condition = {"type": "ApprovalPatch", "status": "True", "reason": "e2e"}
        body = {"metadata": {"annotations": {"a": "b"}}, "status": {"conditions": [condition]}}
        patched = await asked(server, "PATCH", f"{path}/approval", body, **MERGE)
        assert patched["metadata"]["annotations"]["a"] == "b"
        assert patched["status"]["conditions"][0].keys() == {
            *condition, "lastUpdateTime", "lastTransitionTime",
        }  # fmt: skip
        patched["status"]["conditions"].append(
            {"type": "Approved", "status": "True", "reason": "E2E", "message": "Set from a test"}
        )
        updated = await asked(server, "PUT", f"{path}/approval", patched)
        assert [one["type"] for one in updated["status"]["conditions"]] == [
            "ApprovalPatch", "Approved",
        ]  # fmt: skip

        certificate = encoded(certificate_pem("e2e.example.com"))
        body = {"metadata": {"annotations": {"c": "d"}}, "status": {"certificate": certificate}}
        patched = await asked(server, "PATCH", f"{path}/status", body, **MERGE)
        assert patched["status"]["certificate"] == certificate
        assert patched["metadata"]["annotations"]["c"] == "d"
        patched["status"]["conditions"].append({"type": "StatusUpdate", "status": "True"})
        updated = await asked(server, "PUT", f"{path}/status", patched)
        assert updated["status"]["conditions"][-1]["type"] == "StatusUpdate"

        await asked(server, "DELETE", path)
        assert (await server.ask("GET", path)).status == 404
        await asked(server, "DELETE", selected)
        assert (await asked(server, "GET", ROOT))["items"] == []


async def test_approving_and_signing_need_the_verb_on_the_signer(tmp_path: Path) -> None:
    approved = {"status": {"conditions": [{"type": "Approved", "status": "True"}]}}
    signed = {"status": {"certificate": encoded(certificate_pem())}}
    group = "certificates.k8s.io"
    async with serving(tmp_path) as server:
        await asked(server, "POST", ROOT, csr(name="r"))
        requests = ("certificatesigningrequests/approval", "certificatesigningrequests/status")
        await grant(server, "alice", ["update", "patch", "get"], *requests, group=group)
        how = {"token": "alice-token", **MERGE}
        for body, part, verb in ((approved, "approval", "approve"), (signed, "status", "sign")):
            answer = await server.ask("PATCH", f"{ROOT}/r/{part}", body, **how)
            assert answer.status == 403
            assert f"not permitted to {verb} requests with signerName" in answer.json["message"]
            await grant(server, "alice", [verb], "signers", group=group)
            await asked(server, "PATCH", f"{ROOT}/r/{part}", body, **how)


async def test_no_request_is_for_cluster_admins(tmp_path: Path) -> None:
    body = csr("kubernetes.io/kube-apiserver-client", name="r")
    body["spec"] |= {"request": encoded(request_pem("a", "system:masters"))}
    async with serving(tmp_path) as server:
        answer = await server.ask("POST", ROOT, body)
        assert answer.status == 403
        assert "signer with system:masters group is not allowed" in answer.json["message"]
