"""Studies of many runs."""
