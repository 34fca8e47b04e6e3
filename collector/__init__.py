"""The collector: it stamps heartbeats, upserts workers and tells who is alive."""

from importlib.metadata import version

__version__ = version("worker-presence")
