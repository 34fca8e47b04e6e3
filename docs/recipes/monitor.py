"""A heartbeat monitor as task runners know it: tasks by their names, counters, and alerts.

    python monitor.py worker-local-1

It is told of tasks on standard input, a line each: `add ID`, `done ID` or `failed ID`.
"""

import sys
from contextlib import ExitStack

from contract.producer import State, register_worker


class HeartbeatMonitor:
    def __init__(self, worker_id: str) -> None:
        self.tasks_completed = self.tasks_failed = 0
        self._tasks: dict[str, ExitStack] = {}
        # It beats from here on. A beat that fails reaches no task: worker.state.failures keeps the
        # last ten, and after three in a row there is an alert, in a thread of its own.
        self.worker = register_worker(
            "sentinel", agent_id=worker_id, on_failure=alert, on_recovery=recovered
        )

    def add_task(self, task_id: str) -> None:
        if task_id not in self._tasks:
            self._tasks[task_id] = in_hand = ExitStack()
            in_hand.enter_context(self.worker.session())

    def remove_task(self, task_id: str, *, failed: bool = False) -> None:
        if in_hand := self._tasks.pop(task_id, None):
            in_hand.close()
            self.tasks_failed += failed
            self.tasks_completed += not failed


def alert(state: State) -> None:
    print(f"ALERT {state.agent_id}: {state.consecutive_failures} beats failed", flush=True)
    for failure in state.failures:
        print(f"  {failure.consecutive_failures}. {failure.error}", flush=True)


def recovered(state: State) -> None:
    print(f"RECOVERED {state.agent_id}: the roster knows it again", flush=True)


if __name__ == "__main__":
    monitor = HeartbeatMonitor(sys.argv[1])
    for verb, task in (line.split() for line in sys.stdin):
        if verb == "add":
            monitor.add_task(task)
        else:
            monitor.remove_task(task, failed=verb == "failed")
    monitor.worker.leave()
    print(f"{monitor.tasks_completed} done, {monitor.tasks_failed} failed")
