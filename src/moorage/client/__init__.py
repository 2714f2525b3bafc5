"""API client for Moorage's or any Kubernetes API server: requests, informers, work queues.

Controllers, the scheduler and the node agent reach the cluster only through this package, so each
of them works unchanged against either server.
"""

from moorage.client.config import ClientConfig, load_kubeconfig
from moorage.client.informer import Informer
from moorage.client.queue import WorkQueue
from moorage.client.recorder import EventRecorder
from moorage.client.resources import Resource
from moorage.client.rest import Client, PatchType, WatchEvent
from moorage.client.waiting import wait_until

__all__ = [
    "Client",
    "ClientConfig",
    "EventRecorder",
    "Informer",
    "PatchType",
    "Resource",
    "WatchEvent",
    "WorkQueue",
    "load_kubeconfig",
    "wait_until",
]
