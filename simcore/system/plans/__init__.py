"""Plans: what they are, how they are proven, read, made and played."""
