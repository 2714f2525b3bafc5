"""Network of pods: services, policies, DNS."""
