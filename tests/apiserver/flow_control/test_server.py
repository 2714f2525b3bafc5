"""Flow control of a real API server: its objects, its answers, and floods."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moorage.apiserver.authentication.authenticator import StaticToken
from moorage.apiserver.flow_control.defaults import AUTO_UPDATE, default_objects
from moorage.apiserver.registry.kinds.flowschema import FLOW_SCHEMA
from tests.apiserver.running_server import TOKENS, Answer, Running, serving

GROUP = "/apis/flowcontrol.apiserver.k8s.io/v1"
SCHEMAS, LEVELS = f"{GROUP}/flowschemas", f"{GROUP}/prioritylevelconfigurations"
MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
SYSTEM = tuple(
    StaticToken(name, name, ())
    for name in ("system:kube-controller-manager", "system:kube-scheduler")
)
USERS = (*TOKENS, *SYSTEM, StaticToken("bob-token", "bob", ("dev",)))
SCHEMA_UID, LEVEL_UID = "X-Kubernetes-PF-FlowSchema-UID", "X-Kubernetes-PF-PriorityLevel-UID"
# Waits for a revision that does not come, in a seat.
SLOW = f"{MAPS}?resourceVersion=999999999"
WAITS_S = 20.0
FULL = "Too many requests, please try again later.\n"


async def _until(holds: Callable[[], Any]) -> Any:
    async with asyncio.timeout(WAITS_S):
        while not (found := await holds()):
            pass
        return found


async def _object(server: Running, path: str) -> dict[str, Any] | None:
    answer = await server.ask("GET", path)
    return answer.json if answer.status == 200 else None


def _dangling(obj: dict[str, Any] | None) -> str:
    conditions = ((obj or {}).get("status") or {}).get("conditions") or []
    return next((one["status"] for one in conditions if one["type"] == "Dangling"), "")


async def _may_read(server: Running) -> None:
    """Let the group `dev` read config maps."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["configmaps"]}]
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
    subject = {"apiGroup": ref["apiGroup"], "kind": "Group", "name": "dev"}
    role = {"metadata": {"name": "reader"}, "rules": rules}
    binding = {"metadata": {"name": "reader"}, "roleRef": ref, "subjects": [subject]}
    assert (await server.ask("POST", f"{rbac}/clusterroles", role)).status == 201
    assert (await server.ask("POST", f"{rbac}/clusterrolebindings", binding)).status == 201


async def _own_level(server: Running, **limited: Any) -> None:
    """Give alice a level of her own, which has no seats unless `limited` says otherwise."""
    limit = {"nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "lendablePercent": 0,
             "limitResponse": {"type": "Reject"}, **limited}  # fmt: skip
    level = {"metadata": {"name": "own"}, "spec": {"type": "Limited", "limited": limit}}
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    rules = [{
        "subjects": [{"kind": "User", "user": {"name": "alice"}}],
        "resourceRules": [{**rule, "clusterScope": True}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }]  # fmt: skip
    spec = {"priorityLevelConfiguration": {"name": "own"}, "matchingPrecedence": 2, "rules": rules}
    schema = {"metadata": {"name": "own"}, "spec": spec}
    assert (await server.ask("POST", LEVELS, level)).status == 201
    assert (await server.ask("POST", SCHEMAS, schema)).status == 201


async def _metric(server: Running, name: str, **labels: str) -> float:
    wanted = {f'{key}="{value}"' for key, value in labels.items()}
    lines = (await server.ask("GET", "/metrics")).text.splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith(f"apiserver_flowcontrol_{name}{{")
        and wanted <= set(re.findall(r'\w+="[^"]*"', line))
    )


async def test_a_new_cluster_has_the_default_objects_as_kubectl_shows_them(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, runs=True) as server:

        async def shown(path: str) -> list[list[Any]]:
            table = (await server.ask("GET", path, Accept=TABLE)).json
            age = [column["name"] for column in table["columnDefinitions"]].index("Age")
            return [[*row["cells"][:age], *row["cells"][age + 1 :]] for row in table["rows"]]

        async def has_conditions() -> bool:
            return all(row[-1] == "False" for row in await shown(SCHEMAS))

        await _until(has_conditions)
        assert await shown(SCHEMAS) == [
            ["catch-all", "catch-all", 10000, "ByUser", "False"],
            ["exempt", "exempt", 1, "<none>", "False"],
            ["global-default", "global-default", 9900, "ByUser", "False"],
            ["kube-controller-manager", "workload-high", 800, "ByNamespace", "False"],
            ["kube-scheduler", "workload-high", 800, "ByNamespace", "False"],
            ["kube-system-service-accounts", "workload-high", 900, "ByNamespace", "False"],
            ["probes", "exempt", 2, "<none>", "False"],
            ["service-accounts", "workload-low", 9000, "ByUser", "False"],
            ["system-leader-election", "leader-election", 100, "ByUser", "False"],
            ["system-node-high", "node-high", 400, "ByUser", "False"],
            ["system-nodes", "system", 500, "ByUser", "False"],
        ]
        none = "<none>"
        assert await shown(LEVELS) == [
            ["catch-all", "Limited", 5, none, none, none],
            ["exempt", "Exempt", none, none, none, none],
            ["global-default", "Limited", 20, 128, 6, 50],
            ["leader-election", "Limited", 10, 16, 4, 50],
            ["node-high", "Limited", 40, 64, 6, 50],
            ["system", "Limited", 30, 64, 6, 50],
            ["workload-high", "Limited", 40, 128, 6, 50],
            ["workload-low", "Limited", 100, 128, 6, 50],
        ]
        probes = await _object(server, f"{SCHEMAS}/probes")
        assert probes is not None
        managers = {entry["manager"] for entry in probes["metadata"]["managedFields"]}
        assert managers == {
            "api-priority-and-fairness-config-producer-v1",
            "api-priority-and-fairness-config-consumer-v1",
        }
        assert probes["metadata"]["annotations"] == {AUTO_UPDATE: "true"}


async def test_each_answer_names_its_schema_and_level_by_uid(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        uids = {
            (path, item["metadata"]["name"]): item["metadata"]["uid"]
            for path in (SCHEMAS, LEVELS)
            for item in (await server.ask("GET", path)).json["items"]
        }

        def named(answer: Answer) -> tuple[str, str]:
            return answer.headers[SCHEMA_UID], answer.headers[LEVEL_UID]

        exempt = uids[SCHEMAS, "exempt"], uids[LEVELS, "exempt"]
        usual = uids[SCHEMAS, "global-default"], uids[LEVELS, "global-default"]
        probes = uids[SCHEMAS, "probes"], uids[LEVELS, "exempt"]
        node = uids[SCHEMAS, "system-node-high"], uids[LEVELS, "node-high"]
        for method, path, token, status, expected in (
            ("GET", MAPS, "admin-token", 200, exempt),
            ("GET", MAPS, "alice-token", 403, usual),
            ("GET", "/version", "alice-token", 200, usual),
            ("GET", "/readyz", "alice-token", 200, probes),
            ("GET", f"{MAPS}/none", "admin-token", 404, exempt),
            ("GET", "/none", "admin-token", 404, exempt),
            ("POST", MAPS, "admin-token", 415, exempt),
            ("GET", "/api/v1/nodes?fieldSelector=metadata.name=n1", "agent-token", 200, node),
        ):
            answer = await server.ask(method, path, token=token)
            assert answer.status == status, answer.text
            assert named(answer) == expected, path
        refused = await server.ask("GET", MAPS, token="wrong")
        assert refused.status == 401
        assert SCHEMA_UID not in refused.headers
        logs = await server.ask("GET", "/api/v1/namespaces/default/pods/none/log")
        assert SCHEMA_UID not in logs.headers
        async with server.opened(f"{MAPS}?watch=1") as stream:
            assert stream.headers[SCHEMA_UID] == exempt[0]
            assert stream.headers[LEVEL_UID] == exempt[1]


async def test_a_flood_of_one_user_keeps_neither_the_system_nor_other_users_out(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, static_tokens=USERS, seats=60) as server:
        await _may_read(server)
        loop = asyncio.get_running_loop()
        flood = [asyncio.create_task(server.ask("GET", SLOW, token="alice-token"))
                 for _ in range(90)]  # fmt: skip

        async def is_full() -> bool:
            labels = {"flow_schema": "global-default"}
            return await _metric(server, "current_inqueue_requests", **labels) > 10

        await _until(is_full)
        began = loop.time()
        for token in ("admin-token", *(user.token for user in SYSTEM)):
            assert (await server.ask("GET", MAPS, token=token)).status in (200, 403)
        agent = "/api/v1/nodes?fieldSelector=metadata.name=n1"
        assert (await server.ask("GET", agent, token="agent-token")).status == 200
        assert (await server.ask("GET", "/readyz", token="alice-token")).status == 200
        assert loop.time() - began < 2, "they did not wait for seats"
        assert any(not task.done() for task in flood)
        # Another user waits for the next seat, not behind all of alice's requests.
        answers = await asyncio.gather(
            *(server.ask("GET", MAPS, token="bob-token") for _ in range(3))
        )
        assert [answer.status for answer in answers] == [200] * 3
        assert sum(not task.done() for task in flood) > 0
        statuses = {answer.status for answer in await asyncio.gather(*flood)}
        assert statuses <= {504, 429}
        assert 504 in statuses
        assert await _metric(server, "current_inqueue_requests") == 0
        assert (await server.ask("GET", MAPS, token="alice-token")).status == 200


async def test_a_request_over_the_limits_is_answered_as_upstream_does(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        assert (await server.ask("GET", MAPS, token="alice-token")).status == 403
        await _own_level(server)
        for method, path in (("GET", MAPS), ("POST", MAPS), ("GET", "/version"),
                             ("GET", f"{MAPS}?watch=1")):  # fmt: skip
            body: dict[str, Any] | None = {} if method == "POST" else None
            await _may_read_and_write(server)
            answer = await server.ask(method, path, body, token="alice-token")
            assert (answer.status, answer.text) == (429, FULL), path
            assert answer.headers["Retry-After"] == "1"
            own = await _object(server, f"{SCHEMAS}/own")
            assert own is not None
            assert answer.headers[SCHEMA_UID] == own["metadata"]["uid"]
        assert (await server.ask("GET", "/readyz", token="alice-token")).status == 200
        assert (
            await _metric(
                server, "rejected_requests_total", flow_schema="own", reason="concurrency-limit"
            )
            == 4
        )
        assert (await server.ask("DELETE", f"{LEVELS}/own")).status == 200
        assert (await server.ask("GET", MAPS, token="alice-token")).status == 200


async def _may_read_and_write(server: Running) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}
    ref = {"apiGroup": subject["apiGroup"], "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"metadata": {"name": "alice"}, "roleRef": ref, "subjects": [subject]}
    answer = await server.ask("POST", f"{rbac}/clusterrolebindings", binding)
    assert answer.status in (201, 409)


async def test_a_hostile_configuration_stops_neither_masters_nor_the_server(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, static_tokens=USERS, runs=True) as server:
        await _may_read_and_write(server)
        as_alice = {"token": "alice-token"}
        for path in (f"{SCHEMAS}/exempt", f"{SCHEMAS}/catch-all", f"{LEVELS}/catch-all"):
            present = await _object(server, path)
            assert present is not None
            hostile = {**present, "spec": {**present["spec"], "rules": []}}
            if path == f"{LEVELS}/catch-all":
                limited = {**present["spec"]["limited"], "nominalConcurrencyShares": 0}
                hostile["spec"] = {**present["spec"], "limited": limited}
            answer = await server.ask("PUT", path, hostile, **as_alice)
            assert answer.status == 422, answer.text
        for path in (SCHEMAS, LEVELS):
            assert (await server.ask("DELETE", path, **as_alice)).status == 200
        for token, path in (
            ("admin-token", MAPS),
            ("alice-token", MAPS),
            ("bob-token", "/version"),
        ):
            assert (await server.ask("GET", path, token=token)).status == 200

        async def is_restored() -> bool:
            names = [
                [item["metadata"]["name"] for item in (await server.ask("GET", path)).json["items"]]
                for path in (SCHEMAS, LEVELS)
            ]
            return [len(found) for found in names] == [11, 8]

        await _until(is_restored)
        # A level without seats for everyone but masters: they still are served.
        everyone = {"subjects": [{"kind": "Group", "group": {"name": "*"}}]}
        await _own_level(server)
        own = await _object(server, f"{SCHEMAS}/own")
        assert own is not None
        own["spec"]["rules"] = [{**own["spec"]["rules"][0], **everyone}]
        assert (await server.ask("PUT", f"{SCHEMAS}/own", own, **as_alice)).status in (200, 429)
        assert (await server.ask("PUT", f"{SCHEMAS}/own", own)).status in (200, 409)
        assert (await server.ask("GET", MAPS)).status == 200
        assert (await server.ask("GET", MAPS, token="bob-token")).status == 403
        assert (await server.ask("GET", "/version", token="bob-token")).status == 429
        assert (await server.ask("GET", "/readyz", token="bob-token")).status == 200


async def test_changed_default_objects_are_restored_as_their_annotation_says(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, runs=True) as server:
        path = f"{SCHEMAS}/service-accounts"

        async def put(precedence: int, annotation: str) -> None:
            for _ in range(20):
                present = await _object(server, path)
                assert present is not None
                present["spec"]["matchingPrecedence"] = precedence
                present["metadata"]["annotations"] = {AUTO_UPDATE: annotation}
                if (await server.ask("PUT", path, present)).status == 200:
                    return
            raise AssertionError("every update was a conflict")

        async def precedence() -> int:
            present = await _object(server, path)
            assert present is not None
            return int(present["spec"]["matchingPrecedence"])

        await put(77, "true")

        async def is_restored() -> bool:
            return await precedence() == 9000

        await _until(is_restored)
        await put(88, "false")
        unwanted = {"metadata": {"name": "old", "annotations": {AUTO_UPDATE: "true"}},
                    "spec": {"priorityLevelConfiguration": {"name": "none"}}}  # fmt: skip
        assert (await server.ask("POST", SCHEMAS, unwanted)).status == 201

        async def is_removed() -> bool:
            return await _object(server, f"{SCHEMAS}/old") is None

        await _until(is_removed)
        assert await precedence() == 88


async def test_the_condition_dangling_follows_the_level(tmp_path: Path) -> None:
    async with serving(tmp_path, runs=True) as server:
        path = f"{SCHEMAS}/own"
        await _own_level(server)

        async def is_(status: str) -> bool:
            return _dangling(await _object(server, path)) == status

        await _until(lambda: is_("False"))
        assert (await server.ask("DELETE", f"{LEVELS}/own")).status == 200
        await _until(lambda: is_("True"))
        row = (await server.ask("GET", path, Accept=TABLE)).json["rows"][0]["cells"]
        assert row[-1] == "True"
        patch: dict[str, Any] = {"status": {"conditions": []}}
        merge = {"Content_Type": "application/merge-patch+json"}
        assert (await server.ask("PATCH", f"{path}/status", patch, **merge)).status == 200
        await _until(lambda: is_("True"))


async def test_every_default_object_passes_validation_and_starts_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        before = {
            item["metadata"]["name"]: item["metadata"]["resourceVersion"]
            for item in (await server.ask("GET", SCHEMAS)).json["items"]
        }
    assert len(before) == sum(kind is FLOW_SCHEMA for kind, _, _ in default_objects())
    async with serving(tmp_path) as server:
        for item in (await server.ask("GET", SCHEMAS)).json["items"]:
            assert item["metadata"]["resourceVersion"] == before[item["metadata"]["name"]]


@pytest.mark.parametrize(
    ("page", "first"),
    [
        ("dump_priority_levels", "PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, "
         "WaitingRequests, ExecutingRequests, DispatchedRequests, RejectedRequests, "
         "TimedoutRequests, CancelledRequests"),
        ("dump_queues", "PriorityLevelName, Index, PendingRequests, ExecutingRequests, SeatsInUse, "
         "NextDispatchR, InitialSeatsSum, MaxSeatsSum, TotalWorkSum"),
    ],
)  # fmt: skip
async def test_dumps(tmp_path: Path, page: str, first: str) -> None:
    path = f"/debug/api_priority_and_fairness/{page}"
    async with serving(tmp_path) as server:
        assert (await server.ask("GET", path, token="alice-token")).status == 403
        answer = await server.ask("GET", path)
        assert answer.status == 200
        lines = answer.text.splitlines()
        assert re.sub(" +", " ", lines[0]) == first
        if page == "dump_priority_levels":
            assert lines[1].startswith("catch-all,         0,            true,   false,")
            assert len(lines) == 9
        assert (await server.ask("GET", f"{path}s")).status == 404
