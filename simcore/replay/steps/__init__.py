"""From a recorded trace to the dependency graph of one of its steps."""
