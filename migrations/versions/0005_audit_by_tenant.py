"""The audit by its tenant first, as every other table of a tenant on PostgreSQL.

SQLite numbers rows by a primary key that is the id alone, and keeps its index beside it.
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.drop_constraint("audit_pkey", "audit", type_="primary")
    op.create_primary_key("audit_pkey", "audit", ["tenant_id", "id"])
    # The key is this index by now.
    op.drop_index("audit_of_tenant", "audit")
