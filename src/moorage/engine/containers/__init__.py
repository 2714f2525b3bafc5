"""Containers: made in a sandbox, started, watched, ended, removed."""
