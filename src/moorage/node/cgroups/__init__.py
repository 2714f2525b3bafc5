"""The cgroups of pods: the quality-of-service tree and its exact values, on v1, v2 and hybrids."""
