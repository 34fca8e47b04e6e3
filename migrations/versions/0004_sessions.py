"""Browsers that signed in with a key: what a cookie is looked up by, never the cookie itself."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "sessions",
        sa.Column("digest", Name, nullable=False),
        sa.Column("id", Name, nullable=False),
        sa.Column("tenant_id", Name, nullable=False),
        sa.Column("key_id", Name, nullable=False),
        sa.Column("browser", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="sessions_pkey"),
    )
    op.create_index("sessions_by_id", "sessions", ["id"], unique=True)
    op.create_index("sessions_of_key", "sessions", ["key_id", "created_at"])
    op.create_index("sessions_by_end", "sessions", ["expires_at"])
