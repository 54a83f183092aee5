"""Scripts beside the package: packing measurements, taking them, checking predictions against them."""
