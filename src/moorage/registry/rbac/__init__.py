"""Role-based access: which rules a user holds, what a rule allows, what a rule set covers."""

from moorage.registry.rbac.resolver import HeldRule, RuleResolver
from moorage.registry.rbac.rules import Action, allows, uncovered

__all__ = ["Action", "HeldRule", "RuleResolver", "allows", "uncovered"]
