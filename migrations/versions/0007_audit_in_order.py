"""The audit's old end by an index on PostgreSQL, where its key begins with the tenant."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.create_index("audit_in_order", "audit", ["id"])
