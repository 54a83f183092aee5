"""Measured times of kernels and collectives, and what they say about sizes and devices that nobody measured."""
