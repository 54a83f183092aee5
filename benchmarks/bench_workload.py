"""The workload layer: reading 100,000 rows of text."""

from __future__ import annotations

from simcore.workload import text

ROW = "layer{index}\t-1\t1000\tALLREDUCE\t1024\t1000\tNONE\t0\t1000\tALLREDUCE\t1048576\t100\n"
HEADER = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 64\n"


def bench_reading_100000_rows(benchmark):
    count = 100_000
    content = f"{HEADER}{count}\n" + "".join(ROW.format(index=index) for index in range(count))
    workload = benchmark.pedantic(text.parse, (content, "rows.txt", "simai"), rounds=1)
    assert len(workload.layers) == count
