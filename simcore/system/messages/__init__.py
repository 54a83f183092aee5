"""The messages of phases, played one by one or as columns, and those of no phase."""
