"""The wafer-scale workload generator: operations per node, instructions per core, traffic between nodes.

Compatible with huawei-csl/wse-workload-generator at commit 85e1ae7 where that accepts the configuration.
"""
