"""Chakra execution traces: schema, reader, writer, converters."""
