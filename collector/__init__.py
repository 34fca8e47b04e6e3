"""The collector: it stamps heartbeats, upserts workers and tells who is alive."""

__version__: str


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # When somebody asks: loading this takes longer than all else of a small process of ours.
    from importlib.metadata import version

    return version("worker-presence")
