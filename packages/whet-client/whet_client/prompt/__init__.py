"""A prompt as a document: messages with slots and editable regions. `whet.prompt` adds managed instructions and diffs."""

from __future__ import annotations

from whet_client.prompt.document import AUTO, MASK, Prompt
from whet_client.prompt.fence import Region

__all__ = ["AUTO", "MASK", "Prompt", "Region"]
