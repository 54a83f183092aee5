"""The processes of NPUs: cells of a loop or a pipeline, nodes of a graph."""
