"""How long a kernel takes on an accelerator."""
