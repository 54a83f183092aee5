"""Other formats as Chakra execution traces."""
