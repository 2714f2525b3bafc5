from __future__ import annotations

from moorage.node.server.statistics import Rates, resource_text

SECOND = 1_000_000_000


def test_use_per_second_is_worked_out_from_two_readings() -> None:
    rates = Rates()
    assert rates.rate("c", 0, 0) is None
    assert rates.rate("c", 2 * SECOND, SECOND) == SECOND // 2
    # Too close to the last for a figure of its own.
    assert rates.rate("c", 2 * SECOND + 1, 9 * SECOND) == SECOND // 2
    # A total that went back is another container's, or the engine's fault: never negative.
    assert rates.rate("c", 4 * SECOND, 0) == 0
    rates.keep(set())
    assert rates.rate("c", 5 * SECOND, SECOND) is None


def test_the_form_that_metrics_server_reads() -> None:
    use = {"cpu": {"usageCoreNanoSeconds": SECOND}, "memory": {"workingSetBytes": 7}}
    pod = {"podRef": {"name": "web", "namespace": "shop"}, "containers": [{"name": "app"} | use]}
    lines = resource_text({"node": use, "pods": [pod | use]}).splitlines()
    assert [each for each in lines if not each.startswith("#")] == [
        'container_cpu_usage_seconds_total{container="app",namespace="shop",pod="web"} 1',
        'container_memory_working_set_bytes{container="app",namespace="shop",pod="web"} 7',
        "node_cpu_usage_seconds_total 1",
        "node_memory_working_set_bytes 7",
        'pod_cpu_usage_seconds_total{namespace="shop",pod="web"} 1',
        'pod_memory_working_set_bytes{namespace="shop",pod="web"} 7',
        "resource_scrape_error 0",
    ]
