"""Time matrix products on this machine's GPU: python tools/measure_products.py > own_h100_gemm.csv."""

import sys

try:
    import torch
    from torch.utils.benchmark import Timer

    torch.cuda.init()
except (ImportError, AssertionError, RuntimeError) as error:
    sys.exit(f"{sys.argv[0]}: error: needs PyTorch and a GPU that it can use: {error}")
print("dtype,n,k,m,time_us")
for n, k in [(4096, 4096), (14336, 4096), (4096, 14336), (8192, 8192), (28672, 8192), (8192, 28672)]:
    for m in (256, 512, 1024, 2048, 4096, 8192, 16384):
        x, w = (torch.randn(rows, k, device="cuda", dtype=torch.bfloat16) for rows in (m, n))
        median_s = Timer("x @ w.T", globals={"x": x, "w": w}).blocked_autorange().median
        print(f"bf16,{n},{k},{m},{median_s * 1e6:.3f}")
