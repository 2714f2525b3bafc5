"""Status of ValidatingAdmissionPolicies: what is wrong with their expressions' types."""

from moorage.controllers.validatingadmissionpolicies.controller import (
    ValidatingAdmissionPolicyStatusController,
)

__all__ = ["ValidatingAdmissionPolicyStatusController"]
