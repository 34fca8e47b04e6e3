"""One table a noun, for both backends.

Times are epoch microseconds. Text that is a key or an order has collation C, so that Python,
SQLite and PostgreSQL sort alike: lock order and paging depend on it.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    Identity,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
)

from contract.vocabulary import STATUSES

# The newest revision in migrations/; a test proves it.
HEAD = "0007"

metadata = MetaData()
_Name = Text().with_variant(Text(collation="C"), "postgresql")

workers = Table(
    "workers",
    metadata,
    Column("tenant_id", _Name, nullable=False),
    Column("agent_id", _Name, nullable=False),
    Column("agent_name", _Name, nullable=False),
    Column("status", Text, nullable=False),
    Column("active_sessions", BigInteger, nullable=False),
    Column("project", Text),
    Column("region", Text),
    Column("version", Text),
    Column("host", Text),
    Column("dispatch_name", Text),
    Column("started_at", BigInteger),
    Column("ts", BigInteger),
    Column("memory_rss_bytes", BigInteger),
    Column("memory_total_bytes", BigInteger),
    Column("cpu_pct", Double),
    Column("last_seen", BigInteger, nullable=False),
    Column("first_seen", BigInteger, nullable=False),
    # What was last announced: online, left, or lost (by the sweep).
    Column("reported", Text, nullable=False),
    # When the spell that lasts began; None while offline.
    Column("online_from", BigInteger),
    # The previous beat's own started_at: going back from it is a second process.
    Column("beat_started_at", BigInteger),
    Column("conflict_seen", BigInteger),
    # Scratch: what the newest statement did to the row, read by that statement alone.
    Column("change", Text),
    Column("lost_at", BigInteger),
    Column("ended_from", BigInteger),
    Column("was", Text),
    PrimaryKeyConstraint("tenant_id", "agent_id", name="workers_pkey"),
    CheckConstraint(f"status IN {STATUSES}", name="workers_status_check"),
    CheckConstraint("active_sessions >= 0", name="workers_active_sessions_check"),
    CheckConstraint("reported IN ('online', 'left', 'lost')", name="workers_reported_check"),
    # Room on each page, so that a beat rewrites its row in place.
    postgresql_with={"fillfactor": 70},
)
Index(
    "workers_walk",
    workers.c.tenant_id,
    workers.c.first_seen.desc(),
    workers.c.agent_id.desc(),
)

events = Table(
    "events",
    metadata,
    Column("tenant_id", _Name, nullable=False),
    Column("n", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("reason", Text),
    Column("agent_id", _Name, nullable=False),
    # The row as it was committed, as a JSON object.
    Column("worker", Text, nullable=False),
    PrimaryKeyConstraint("tenant_id", "n", name="events_pkey"),
)

Index("events_of_worker", events.c.tenant_id, events.c.agent_id, events.c.at)

# One row: which log this is. A restore mints another, so that old cursors are seen to be old.
log_epoch = Table(
    "log_epoch",
    metadata,
    Column("one", Integer, nullable=False, autoincrement=False),
    Column("epoch", Text, nullable=False),
    PrimaryKeyConstraint("one", name="log_epoch_pkey"),
)

event_counters = Table(
    "event_counters",
    metadata,
    Column("tenant_id", _Name, nullable=False),
    Column("n", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", name="event_counters_pkey"),
)

# Spells that ended; the one that lasts is workers.online_from.
spells = Table(
    "spells",
    metadata,
    Column("tenant_id", _Name, nullable=False),
    Column("agent_id", _Name, nullable=False),
    Column("online_from", BigInteger, nullable=False),
    Column("online_until", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    PrimaryKeyConstraint("tenant_id", "agent_id", "online_from", name="spells_pkey"),
)

Index("spells_by_end", spells.c.online_until)

collectors = Table(
    "collectors",
    metadata,
    Column("collector_id", _Name, nullable=False),
    Column("last_seen", BigInteger, nullable=False),
    PrimaryKeyConstraint("collector_id", name="collectors_pkey"),
)

gaps = Table(
    "gaps",
    metadata,
    Column("began_at", BigInteger, nullable=False, autoincrement=False),
    Column("ended_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("began_at", name="gaps_pkey"),
)

keys = Table(
    "keys",
    metadata,
    Column("id", _Name, nullable=False),
    # Empty once its tenant is removed: the id stays, revoked, for collectors that still know it.
    Column("tenant_id", _Name, nullable=False),
    Column("name", Text),
    Column("digest", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    # The key revision that made this row what it is.
    Column("revision", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    # To the minute or so: never written for one beat.
    Column("last_used_at", BigInteger),
    # Which key replaced this one: none is replaced twice.
    Column("successor_id", _Name),
    PrimaryKeyConstraint("id", name="keys_pkey"),
)
Index("keys_of_tenant", keys.c.tenant_id)

# Browsers that signed in with a key. Their tokens are nowhere but with them.
sessions = Table(
    "sessions",
    metadata,
    Column("digest", _Name, nullable=False),
    Column("id", _Name, nullable=False),
    Column("tenant_id", _Name, nullable=False),
    Column("key_id", _Name, nullable=False),
    Column("browser", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("digest", name="sessions_pkey"),
)
Index("sessions_by_id", sessions.c.id, unique=True)
Index("sessions_of_key", sessions.c.key_id, sessions.c.created_at)
Index("sessions_by_end", sessions.c.expires_at)

# Who did what; it is added to, and cut at its old end. Its order is that of the ids, its time that
# of the actor's collector.
audit = Table(
    "audit",
    metadata,
    Column(
        "id",
        BigInteger().with_variant(Integer, "sqlite"),
        Identity(always=True),
        nullable=False,
    ),
    Column("tenant_id", _Name, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", Text, nullable=False),
    # SQLite numbers rows by a key that is the id alone: there the index stands in for this one.
    PrimaryKeyConstraint("tenant_id", "id", name="audit_pkey"),
)
Index("audit_of_tenant", audit.c.tenant_id, audit.c.id).ddl_if(dialect="sqlite")
# This index finds the audit's old end; SQLite's rows are in that order already.
Index("audit_in_order", audit.c.id).ddl_if(dialect="postgresql")

# One row, bumped by every change of a key: what the processes poll.
key_revision = Table(
    "key_revision",
    metadata,
    Column("one", Integer, nullable=False, autoincrement=False),
    Column("revision", BigInteger, nullable=False),
    PrimaryKeyConstraint("one", name="key_revision_pkey"),
)
