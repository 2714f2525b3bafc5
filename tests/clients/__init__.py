"""Clients that others wrote, each in a small program that uses what its users use most."""
