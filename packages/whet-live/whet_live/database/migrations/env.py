"""What Alembic runs: the migrations on the connection, and in the transaction, that it is given."""

from __future__ import annotations

from alembic import context

from whet_live.database.columns import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True
)
context.run_migrations()
