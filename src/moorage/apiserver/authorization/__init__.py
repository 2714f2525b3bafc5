"""Authorization: the Node authorizer for node agents, RBAC for all users."""

from moorage.apiserver.authorization.authorizer import Authorizer, Decision, refusal
from moorage.apiserver.authorization.node import NodeAuthorizer

__all__ = ["Authorizer", "Decision", "NodeAuthorizer", "refusal"]
