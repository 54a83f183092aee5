"""Shapes of networks."""
