"""May they: the Node rules for node agents, RBAC for everybody."""

from moorage.apiserver.authorization.authorizer import Authorizer, Decision
from moorage.apiserver.authorization.node import NodeAuthorizer

__all__ = ["Authorizer", "Decision", "NodeAuthorizer"]
