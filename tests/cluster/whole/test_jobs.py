"""Jobs with real containers: indexes, failures, suspension, deletion."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.running import RunningCluster, pod, until

pytestmark = pytest.mark.runtime


@pytest.fixture
def name(whole_cluster: RunningCluster) -> Iterator[str]:
    """A name for a Job, which is gone afterwards."""
    name = f"job-{uuid.uuid4().hex[:8]}"
    yield name
    whole_cluster.remove("job", name)


def job(name: str, script: str, **spec: Any) -> dict[str, Any]:
    template = pod(name, container={"command": ["sh", "-c", script]})["spec"]
    template["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": template}, **spec},
    }


def wait_for(cluster: RunningCluster, name: str, condition: str) -> dict[str, Any]:
    cluster.kubectl("wait", f"--for=condition={condition}", f"job/{name}", "--timeout=60s")
    return dict(cluster.get("job", name)["status"])


def test_each_index_of_a_job_runs_and_knows_itself(
    whole_cluster: RunningCluster, name: str
) -> None:
    script = 'echo "$JOB_COMPLETION_INDEX $(hostname)"'
    modes = {"completionMode": "Indexed", "completions": 3, "parallelism": 2}
    whole_cluster.apply(job(name, script, **modes))
    status = wait_for(whole_cluster, name, "complete")
    assert (status["succeeded"], status["completedIndexes"]) == (3, "0-2")
    logs = whole_cluster.kubectl("logs", "-l", f"job-name={name}").stdout
    assert sorted(logs.splitlines()) == [f"{index} {name}-{index}" for index in range(3)]


def test_an_exit_code_of_the_failure_policy_ends_a_job(
    whole_cluster: RunningCluster, name: str
) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    whole_cluster.apply(job(name, "exit 42", podFailurePolicy={"rules": [rule]}))
    status = wait_for(whole_cluster, name, "failed")
    (target, failed) = status["conditions"]
    assert (target["type"], failed["reason"]) == ("FailureTarget", "PodFailurePolicy")
    assert failed["message"].endswith("failed with exit code 42 matching FailJob rule at index 0")
    assert status["failed"] == 1


def test_a_cron_job_starts_jobs_that_go_with_it(whole_cluster: RunningCluster, name: str) -> None:
    cron_job = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {"schedule": "@every 1s", "jobTemplate": {"spec": job(name, "true")["spec"]}},
    }
    whole_cluster.apply(cron_job)

    def jobs() -> list[Any]:
        items = whole_cluster.get("jobs")["items"]
        return [item for item in items if item["metadata"]["name"].startswith(f"{name}-")]

    until(lambda: any(item["status"].get("succeeded") for item in jobs()), "a finished Job", 30)
    until(
        lambda: whole_cluster.get("cronjob", name)["status"].get("lastSuccessfulTime"), "a success"
    )
    whole_cluster.kubectl("create", "job", f"{name}-by-hand", f"--from=cronjob/{name}")
    wait_for(whole_cluster, f"{name}-by-hand", "complete")
    whole_cluster.kubectl("delete", "cronjob", name)
    until(lambda: jobs() == [], "no Jobs", 30)


def test_a_job_is_suspended_and_resumed_and_goes_with_its_pods(
    whole_cluster: RunningCluster, name: str
) -> None:
    def pods() -> list[Any]:
        return list(whole_cluster.get("pods", "-l", f"job-name={name}")["items"])

    whole_cluster.apply(job(name, "sleep 1000", suspend=True))
    wait_for(whole_cluster, name, "suspended")
    assert pods() == []
    whole_cluster.kubectl("patch", "job", name, "-p", '{"spec":{"suspend":false}}')
    whole_cluster.kubectl("wait", "--for=jsonpath={.status.ready}=1", f"job/{name}",
                          "--timeout=60s")  # fmt: skip
    whole_cluster.kubectl("delete", "job", name, "--wait=true")
    until(lambda: pods() == [], "no pods")
