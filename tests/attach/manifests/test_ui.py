"""The web page's objects: no right, no token, and none at all where it is turned off."""

from __future__ import annotations

from typing import Any

from moorage.attach.manifests import objects
from moorage.attach.manifests.ui import PORT, SERVICE
from moorage.attach.values import PageValues, Values

_NAME = "moorage-ui"


def made(kind: str, values: Values) -> list[dict[str, Any]]:
    return [
        obj for obj in objects(values) if obj["kind"] == kind and obj["metadata"]["name"] == _NAME
    ]


def test_the_page_has_no_rights_and_no_token() -> None:
    bindings = [obj for obj in objects(Values()) if obj["kind"].endswith("RoleBinding")]
    bound = {subject["name"] for obj in bindings for subject in obj["subjects"]}
    assert _NAME not in bound
    (account,) = made("ServiceAccount", Values())
    assert account["automountServiceAccountToken"] is False
    (deployment,) = made("Deployment", Values())
    pod = deployment["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["volumes"] == [{"name": "authority", "configMap": {"name": "kube-root-ca.crt"}}]
    (container,) = pod["containers"]
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["readOnlyRootFilesystem"]
    # Less than the parts that a cluster needs.
    assert "priorityClassName" not in pod


def test_the_service_leads_to_the_pods_of_the_page() -> None:
    (service,), (deployment,) = made("Service", Values()), made("Deployment", Values())
    assert service["metadata"]["name"] == SERVICE
    assert service["spec"]["ports"][0]["targetPort"] == PORT
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_with_a_secret_the_page_is_served_by_https() -> None:
    values = Values(ui=PageValues(tls_secret="page-tls"))
    (service,), (deployment,) = made("Service", values), made("Deployment", values)
    (port,) = service["spec"]["ports"]
    assert (port["name"], port["port"]) == ("https", 443)
    pod = deployment["spec"]["template"]["spec"]
    assert {"name": "certificates", "secret": {"secretName": "page-tls"}} in pod["volumes"]
    (container,) = pod["containers"]
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert container["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert "--tls-cert-file=/certificates/tls.crt" in container["args"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted["certificates"] == "/certificates"


def test_the_page_can_be_turned_off() -> None:
    without = Values(ui=PageValues(enabled=False))
    assert not [obj for obj in objects(without) if obj["metadata"]["name"] == _NAME]
