"""Steps of wafer-scale machines: the nodes or the cores of a generated step played on shared links."""
