"""Workloads from the shape of a model."""
