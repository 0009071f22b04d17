"""The entry of Alembic: it runs the migrations on the given connection, in its transaction."""

from __future__ import annotations

from alembic import context

from whet_live.database.columns import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True
)
context.run_migrations()
