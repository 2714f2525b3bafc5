"""Puts the parts together: certificates, processes, the container engine, and their life."""
