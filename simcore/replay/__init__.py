"""Real traces against measured time."""
