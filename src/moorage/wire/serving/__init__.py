"""HTTP serving: connection limits, deadlines and budgets.

    listener ──▶ Acceptor ──admit──▶ ConnectionTable ──▶ HttpConnection ──▶ the server's handler
                                       │ limits per address, reserve for local peers
                                       └ closes connections without a request in time

The API server, the node agent's endpoint and the engine's stream endpoint listen through it.
"""

from moorage.wire.serving.acceptor import Acceptor, ServedCertificate, server_context
from moorage.wire.serving.connection import (
    AtOnce,
    HttpConnection,
    is_proven,
    peer_certificate,
    prove,
)
from moorage.wire.serving.limits import Budget, Limits

__all__ = [
    "Acceptor",
    "AtOnce",
    "Budget",
    "HttpConnection",
    "Limits",
    "ServedCertificate",
    "is_proven",
    "peer_certificate",
    "prove",
    "server_context",
]
