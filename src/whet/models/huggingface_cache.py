"""A key-value cache that has room for the tokens to come, so that each of them is written in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from transformers.cache_utils import DynamicLayer

if TYPE_CHECKING:
    from torch import Tensor


class RoomyLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """A layer's keys and values, (B, heads, length, width), at the beginning of longer tensors.

    Grows as `DynamicLayer` does, but copies only when the room is used up.
    """

    def __init__(self, filled: DynamicLayer, room: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        keys, values = cast(Any, filled.keys), cast(Any, filled.values)
        self.dtype, self.device = keys.dtype, keys.device
        self.is_initialized = True
        self._room = room
        self._length = int(keys.shape[-2])
        self._store = [self._longer(keys), self._longer(values)]
        self._show()

    def _longer(self, filled: Any) -> Any:
        shape = list(filled.shape)
        shape[-2] += self._room
        made = filled.new_empty(shape)
        made[:, :, : filled.shape[-2]] = filled
        return made

    def _show(self) -> None:
        self.keys, self.values = (tensor[:, :, : self._length] for tensor in self._store)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append the keys and values of new tokens; all keys and values."""
        end = self._length + key_states.shape[-2]
        if end > self._store[0].shape[-2]:
            self._room = max(self._room, key_states.shape[-2])
            self._store = [self._longer(self.keys), self._longer(self.values)]
        for tensor, new in zip(self._store, (key_states, value_states), strict=True):
            tensor[:, :, self._length : end] = new
        self._length = end
        self._show()
        assert self.keys is not None and self.values is not None
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the given rows."""
        self._store = [tensor[indices] for tensor in self._store]
        self._show()


def give_room(cache: Any, room: int) -> None:
    """Let the growing layers of a filled cache be written in place for `room` more tokens; others stay."""
    for i, layer in enumerate(getattr(cache, "layers", ())):
        if type(layer) is DynamicLayer and layer.is_initialized:
            cache.layers[i] = RoomyLayer(layer, room)
