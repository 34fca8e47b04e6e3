"""The one producer: what an agent calls so that the roster knows it.

It lives in other people's processes: standard library only, and nothing of it raises into the host,
makes it wait or fills its log. The call is in `registry`, what it returns in `worker`.
"""

from __future__ import annotations

from contract.producer.record import Failure, State
from contract.producer.registry import register_worker
from contract.producer.worker import RegisteredWorker

__all__ = ["Failure", "RegisteredWorker", "State", "register_worker"]
