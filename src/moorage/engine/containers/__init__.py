"""Containers: one module for each RPC of the CRI that acts on a container."""
