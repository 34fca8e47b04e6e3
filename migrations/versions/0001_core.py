"""Workers, their log and spells, gaps, and keys."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "workers",
        sa.Column("tenant_id", Name, nullable=False),
        sa.Column("agent_id", Name, nullable=False),
        sa.Column("agent_name", Name, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("active_sessions", sa.BigInteger, nullable=False),
        sa.Column("project", sa.Text),
        sa.Column("region", sa.Text),
        sa.Column("version", sa.Text),
        sa.Column("host", sa.Text),
        sa.Column("dispatch_name", sa.Text),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("ts", sa.BigInteger),
        sa.Column("memory_rss_bytes", sa.BigInteger),
        sa.Column("memory_total_bytes", sa.BigInteger),
        sa.Column("cpu_pct", sa.Double),
        sa.Column("last_seen", sa.BigInteger, nullable=False),
        sa.Column("first_seen", sa.BigInteger, nullable=False),
        sa.Column("reported", sa.Text, nullable=False),
        sa.Column("online_from", sa.BigInteger),
        sa.Column("beat_started_at", sa.BigInteger),
        sa.Column("conflict_seen", sa.BigInteger),
        sa.Column("change", sa.Text),
        sa.Column("lost_at", sa.BigInteger),
        sa.Column("ended_from", sa.BigInteger),
        sa.Column("was", sa.Text),
        sa.PrimaryKeyConstraint("tenant_id", "agent_id", name="workers_pkey"),
        sa.CheckConstraint("status IN ('idle', 'busy', 'offline')", name="workers_status_check"),
        sa.CheckConstraint("active_sessions >= 0", name="workers_active_sessions_check"),
        sa.CheckConstraint("reported IN ('online', 'left', 'lost')", name="workers_reported_check"),
        postgresql_with={"fillfactor": 70},
    )
    op.create_index(
        "workers_walk",
        "workers",
        ["tenant_id", sa.text("first_seen DESC"), sa.text("agent_id DESC")],
    )
    op.create_table(
        "events",
        sa.Column("tenant_id", Name, nullable=False),
        sa.Column("n", sa.BigInteger, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("agent_id", Name, nullable=False),
        sa.Column("worker", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "n", name="events_pkey"),
    )
    op.create_index("events_of_worker", "events", ["tenant_id", "agent_id", "at"])
    log_epoch = op.create_table(
        "log_epoch",
        sa.Column("one", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("epoch", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("one", name="log_epoch_pkey"),
    )
    op.bulk_insert(log_epoch, [{"one": 1, "epoch": secrets.token_hex(4)}])
    op.create_table(
        "event_counters",
        sa.Column("tenant_id", Name, nullable=False),
        sa.Column("n", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", name="event_counters_pkey"),
    )
    op.create_table(
        "spells",
        sa.Column("tenant_id", Name, nullable=False),
        sa.Column("agent_id", Name, nullable=False),
        sa.Column("online_from", sa.BigInteger, nullable=False),
        sa.Column("online_until", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "agent_id", "online_from", name="spells_pkey"),
    )
    op.create_index("spells_by_end", "spells", ["online_until"])
    op.create_table(
        "collectors",
        sa.Column("collector_id", Name, nullable=False),
        sa.Column("last_seen", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("collector_id", name="collectors_pkey"),
    )
    op.create_table(
        "gaps",
        sa.Column("began_at", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("began_at", name="gaps_pkey"),
    )
    op.create_table(
        "keys",
        sa.Column("id", Name, nullable=False),
        sa.Column("tenant_id", Name, nullable=False),
        sa.Column("name", sa.Text),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("revoked_at", sa.BigInteger),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="keys_pkey"),
    )
    op.create_index("keys_of_tenant", "keys", ["tenant_id"])
    key_revision = op.create_table(
        "key_revision",
        sa.Column("one", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("one", name="key_revision_pkey"),
    )
    op.bulk_insert(key_revision, [{"one": 1, "revision": 0}])
