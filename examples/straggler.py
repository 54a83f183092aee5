"""How much does one slow NPU cost? A data-parallel step on 64 NPUs waits for it; a pipeline would not always."""

import simcore


def main() -> None:
    """Print the time of an iteration against the factor by which NPU 5 is slower."""
    healthy = _time_ns(1.0)
    print("factor      time  slowdown")
    for factor in (1.0, 1.1, 1.25, 1.5, 2.0, 3.0):
        time_ns = _time_ns(factor)
        print(f"{factor:6.2f}  {time_ns / 1e6:5.2f} ms  {time_ns / healthy:7.2f}x")


def _time_ns(factor: float) -> int:
    report = simcore.run("resnet50_data_parallel", "ring64", straggler=(f"5={factor}",))
    return report.to_dict()["time_ns"]


if __name__ == "__main__":
    main()
