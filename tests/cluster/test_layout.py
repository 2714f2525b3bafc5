"""Names in a data directory: a cluster of an earlier version must still open."""

from __future__ import annotations

from pathlib import Path

from moorage.cluster.access.credentials import Credentials, Pair
from moorage.cluster.layout import ENGINE_SOCKET, RUN, SYSTEM_DATA_DIR, Layout

ROOT = Path("/d")


def test_paths_in_the_data_directory() -> None:
    layout = Layout(ROOT)
    properties = [name for name, value in vars(Layout).items() if isinstance(value, property)]
    assert {name: str(getattr(layout, name)) for name in properties} == {
        "settings": "/d/cluster.json",
        "kubeconfig": "/d/kubeconfig",
        "pki": "/d/pki",
        "database": "/d/db/state.db",
        "store_mark": "/d/store.mark",
        "logs": "/d/logs",
        "lock": "/d/supervisor.lock",
        "change_lock": "/d/change.lock",
        "state": "/d/supervisor.json",
        "node": "/d/node",
        "node_store": "/d/node/store",
        "runtimes": "/d/runtimes",
        "pod_logs": "/d/pods",
        "engine": "/d/engine",
        "engine_in_use": "/d/engine-in-use",
        "images": "/d/images",
        "audit_log": "/d/logs/audit.log",
        "front_proxy": "/d/pki/front-proxy",
        "unpacked": "/d/restore",
        "replaced": "/d/replaced",
    }
    assert layout.log("node") == Path("/d/logs/node.log")
    assert layout.part_kubeconfig("node") == Path("/d/node.kubeconfig")


def test_paths_outside_of_it() -> None:
    paths = (SYSTEM_DATA_DIR, RUN, ENGINE_SOCKET)
    assert tuple(map(str, paths)) == ("/var/lib/moorage", "/run/moorage", "engine.sock")


def test_names_of_certificates_and_keys() -> None:
    credentials = Credentials(Layout(ROOT))
    pairs = {name: pair for name, pair in vars(credentials).items() if isinstance(pair, Pair)}
    assert {name: pair.certificate.stem for name, pair in pairs.items()} == {
        "authority": "ca",
        "api_server": "apiserver",
        "admin": "admin",
        "controllers": "controllers",
        "scheduler": "scheduler",
        "network": "network",
        "node": "node",
        "node_server": "node-server",
        "node_client": "apiserver-node-client",
        "controllers_server": "controllers-server",
        "scheduler_server": "scheduler-server",
        "front_proxy": "client",
        "front_proxy_authority": "ca",
    }
    for name, pair in pairs.items():
        directory = "/d/pki/front-proxy" if name.startswith("front_proxy") else "/d/pki"
        assert pair.certificate.parent == Path(directory)
        assert pair.certificate.suffix == ".crt"
        assert pair.key == pair.certificate.with_suffix(".key")
    assert credentials.signing_key == Path("/d/pki/service-accounts.key")
