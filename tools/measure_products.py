"""Time matrix products on this machine's GPU, for `simcore data add own_DEVICE_gemm.csv` (needs PyTorch).

python tools/measure_products.py > own_h100_gemm.csv
"""

import torch

print("dtype,n,k,m,time_us")
for n, k in [(4096, 4096), (14336, 4096), (4096, 14336), (8192, 8192), (28672, 8192), (8192, 28672)]:
    weights = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    for m in (256, 512, 1024, 2048, 4096, 8192, 16384):
        rows, marks = torch.randn(m, k, device="cuda", dtype=torch.bfloat16), [torch.cuda.Event(True) for _ in "ab"]
        for repeat in range(13):  # three to warm up, ten to count
            marks[0].record() if repeat == 3 else None
            rows @ weights.T
        marks[1].record()
        torch.cuda.synchronize()
        print(f"bf16,{n},{k},{m},{marks[0].elapsed_time(marks[1]) * 100:.3f}")
