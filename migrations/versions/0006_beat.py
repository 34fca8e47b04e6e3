"""What a beat is to PostgreSQL: the writer sends a batch as an array of these.

A later version with another field makes a type of its own, so that both can write meanwhile.
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute(
        """
        CREATE TYPE beat AS (
          tenant_id text, agent_id text, agent_name text, status text, active_sessions bigint,
          project text, region text, version text, host text, dispatch_name text,
          started_at bigint, ts bigint, memory_rss_bytes bigint, memory_total_bytes bigint,
          cpu_pct double precision, last_seen bigint)
        """
    )
