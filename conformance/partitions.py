"""The cloud store's tables as an engine like Citus has them: each in parts, by its tenant.

Such an engine keeps a table apart by one column if that column is in every key of the table, and
`PARTITION BY HASH` on a plain PostgreSQL asks the same. What is made here is derived from the
tables that the migrations made, so it can't be another schema than theirs.
"""

from __future__ import annotations

# So many that the suite's two tenants are in different ones.
PARTS = 5

# What stays in one piece, and why. Any other table is put in parts, or refused if it can't be.
WHOLE = {
    "alembic_version": "one row: which revision the schema has",
    "collectors": "a row a collector: none is of a tenant",
    "gaps": "when no collector listened: for every tenant alike",
    "key_revision": "one row, whose lock puts all changes of keys in one order",
    "keys": "found by the id in a key that somebody shows: who its tenant is, it tells",
    "log_epoch": "one row: which log this is",
    "sessions": "found by the digest of a cookie, whose tenant the row tells",
}

# Names, definitions and options are those of the table that was there. What has rows is refused:
# they would be lost.
_PARTITION = """
DO $$
DECLARE
  whole record;
  definition text;
  is_used boolean;
BEGIN
  FOR whole IN
    SELECT c.relname AS name,
           coalesce('WITH (' || array_to_string(c.reloptions, ', ') || ')', '') AS options,
           ARRAY(SELECT format('ALTER TABLE %I ADD CONSTRAINT %I %s',
                               c.relname, k.conname, pg_get_constraintdef(k.oid))
                 FROM pg_constraint AS k
                 WHERE k.conrelid = c.oid AND k.contype IN ('p', 'u', 'x', 'f'))
           || ARRAY(SELECT pg_get_indexdef(i.indexrelid) FROM pg_index AS i
                    WHERE i.indrelid = c.oid AND NOT EXISTS (
                      SELECT FROM pg_constraint AS k
                      WHERE k.conrelid = c.oid AND k.conindid = i.indexrelid)) AS definitions
    FROM pg_class AS c
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
      AND NOT c.relispartition AND c.relname <> ALL (ARRAY[{whole}])
    ORDER BY c.relname
  LOOP
    EXECUTE format('SELECT EXISTS (SELECT FROM %I)', whole.name) INTO is_used;
    IF is_used THEN
      RAISE EXCEPTION 'table % has rows: only an unused store is put in parts', whole.name;
    END IF;
    EXECUTE format('ALTER TABLE %I RENAME TO whole', whole.name);
    EXECUTE format('CREATE TABLE %I (LIKE whole INCLUDING ALL EXCLUDING INDEXES)'
                   ' PARTITION BY HASH (tenant_id)', whole.name);
    DROP TABLE whole;
    FOR part IN 0 .. {parts} - 1 LOOP
      EXECUTE format('CREATE TABLE %I PARTITION OF %I'
                     ' FOR VALUES WITH (MODULUS {parts}, REMAINDER %s) %s',
                     whole.name || '_' || part, whole.name, part, whole.options);
    END LOOP;
    FOREACH definition IN ARRAY whole.definitions LOOP
      EXECUTE definition;
    END LOOP;
  END LOOP;
END $$"""


def partition() -> str:
    """The command that puts a migrated, unused store in parts, all or none; twice does no harm."""
    return _PARTITION.format(parts=PARTS, whole=", ".join(f"'{name}'" for name in sorted(WHOLE)))
