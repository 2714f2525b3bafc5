"""Cluster DNS: names of Services and their endpoints, and a forwarder for all others."""
