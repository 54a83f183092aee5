"""How long a phase takes that has its links for itself."""
