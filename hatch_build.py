"""What building `whet` from this checkout adds to pyproject.toml: the other distributions come from the checkout too, so that
`pip install .` needs no index for them. A release says WHET_RELEASE=1 and asks for them by their versions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Checkout(MetadataHookInterface):
    """Requirements of whet-client and whet-live as addresses of their folders."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Change the requirements in place."""
        if os.environ.get("WHET_RELEASE"):
            return
        for requirements in (metadata["dependencies"], *metadata["optional-dependencies"].values()):
            requirements[:] = map(self._with_address, requirements)

    def _with_address(self, requirement: str) -> str:
        """The requirement, by its folder where this checkout holds it."""
        name = requirement.partition("~=")[0]
        folder = Path(self.root, "packages", name.partition("[")[0])
        return f"{name} @ {folder.as_uri()}" if folder.is_dir() else requirement
