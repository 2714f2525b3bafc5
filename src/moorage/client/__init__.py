"""Talking to an API server, Moorage's or any Kubernetes: requests, informers, work queues.

Controllers, the scheduler and the node agent reach the cluster only through here, so each of them
works unchanged against either server.
"""

from moorage.client.config import ClientConfig, load_kubeconfig
from moorage.client.informer import Informer
from moorage.client.queue import WorkQueue
from moorage.client.recorder import EventRecorder
from moorage.client.resources import Resource
from moorage.client.rest import Client, PatchType, WatchEvent

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
]
