"""simcore: a discrete-event simulator of distributed training steps."""

__version__ = "0.1.0"

__all__ = ["__version__"]
