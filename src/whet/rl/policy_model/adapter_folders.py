"""The adapters of a policy in temporary folders of PEFT: a new one when the weights have changed, and the old one is deleted."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
from pathlib import Path

from safetensors.torch import save

from whet.rl.policy_model.backbone import Backbone, folder_of
from whet.rl.policy_model.peft_folder import write_adapters


class AdapterFolders:
    """`place` holds the folder of the present adapters; `close()` deletes it, as does the end of the process."""

    def __init__(self, body: Backbone) -> None:
        self._body, self._digest, self._number = body, "", 0
        self.place = Path(tempfile.mkdtemp(prefix="whet-vllm-"))
        self.close = weakref.finalize(self, shutil.rmtree, self.place, ignore_errors=True)

    def current(self) -> tuple[int, Path]:
        """The number and the folder of the adapters as they are now; the same ones for the same weights."""
        weights = {name: weight.detach().cpu() for name, weight in self._body.trainable.items()}
        digest = hashlib.sha256(save(weights)).hexdigest()
        if digest != self._digest:
            shutil.rmtree(self.place / str(self._number), ignore_errors=True)
            self._digest, self._number = digest, self._number + 1
            write_adapters(
                weights, self._body.settings, folder_of(self._body.address), self.place / str(self._number)
            )
        return self._number, self.place / str(self._number)
