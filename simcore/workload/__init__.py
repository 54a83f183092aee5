"""What each NPU does: the workload model, the formats it comes in and the training loops."""
