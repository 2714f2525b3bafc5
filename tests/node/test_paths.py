from __future__ import annotations

from pathlib import Path

from moorage.node.paths import NodePaths, container_log, legacy_log_link

PATHS = NodePaths(Path("/var/lib/node"), Path("/var/log/pods"))


def test_a_kubelets_layout() -> None:
    pod = PATHS.pod("u")
    assert str(pod.volume("empty-dir", "v")) == (
        "/var/lib/node/pods/u/volumes/kubernetes.io~empty-dir/v"
    )
    assert str(pod.subpath("v", "app", 1)) == "/var/lib/node/pods/u/volume-subpaths/v/app/1"
    assert str(pod.hosts_file) == "/var/lib/node/pods/u/etc-hosts"
    assert str(PATHS.pod_logs("shop", "web", "u")) == "/var/log/pods/shop_web_u"
    assert container_log("app", 2) == "app/2.log"


def test_a_links_name_fits_and_keeps_the_whole_id() -> None:
    assert legacy_log_link("web", "shop", "app", "c1") == "web_shop_app-c1.log"
    link = legacy_log_link("w" * 250, "shop", "app", "i" * 64)
    assert len(link) == 255
    assert link.endswith(f"-{'i' * 64}.log")
