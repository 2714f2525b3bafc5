"""A service account that limits the Secrets of its pods, through the API."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.apiserver.running_server import serving

INPUT = Path(__file__).parent / "inputs" / "mountable-secrets.yaml"
IN_NAMESPACE = {"ServiceAccount": "serviceaccounts", "Secret": "secrets", "Pod": "pods"}


async def test_a_pod_may_name_the_secrets_that_its_account_lists(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        for one in yaml.safe_load_all(INPUT.read_text()):
            place = "/api/v1/namespaces"
            if one["kind"] != "Namespace":
                place += f"/{one['metadata']['namespace']}/{IN_NAMESPACE[one['kind']]}"
            created = await server.ask("POST", place, one)
            assert created.status == 201, created.text
            last = (place, one)
        place, pod = last
        hidden = {"secretRef": {"name": "hidden"}}
        pod["metadata"]["name"] = "not-ok"
        pod["spec"]["containers"][0]["envFrom"] = [hidden]
        refused = await server.ask("POST", place, pod)
        assert refused.status == 403
        assert refused.json["message"] == (
            'pods "not-ok" is forbidden: container c with envFrom referencing '
            'secret.secretName="hidden" is not allowed because service account sa does not '
            "reference that secret"
        )
        debug = {"name": "d", "image": "i", "envFrom": [hidden]}
        added = await server.ask(
            "PATCH", f"{place}/ok/ephemeralcontainers", {"spec": {"ephemeralContainers": [debug]}},
            Content_Type="application/strategic-merge-patch+json",
        )  # fmt: skip
        assert (added.status, "ephemeral container d" in added.text) == (403, True), added.text
