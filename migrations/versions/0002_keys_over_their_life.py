"""When a key ends and when it was last used, and who did what."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("keys", sa.Column("expires_at", sa.BigInteger))
    op.add_column("keys", sa.Column("last_used_at", sa.BigInteger))
    op.create_table(
        "audit",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            sa.Identity(always=True),
            nullable=False,
        ),
        sa.Column("tenant_id", Name, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="audit_pkey"),
    )
    op.create_index("audit_of_tenant", "audit", ["tenant_id", "id"])
