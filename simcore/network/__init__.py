"""How long a transfer takes."""
