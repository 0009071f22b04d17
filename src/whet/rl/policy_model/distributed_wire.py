"""What processes of one training say to each other: JSON facts and safetensors bytes, one frame after the other."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of

from whet.rl.policy_model.backbone import Tensors

Facts = dict[str, Any]
_HEAD = struct.Struct("<QQ")  # lengths of facts and tensors, in bytes


def send(connection: socket.socket, facts: Mapping[str, Any], tensors: Tensors) -> None:
    """Send one frame. Raises OSError when the other side is gone."""
    header = json.dumps(facts).encode()
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    blob = bytes_of(kept) if kept else b""
    for part in (_HEAD.pack(len(header), len(blob)), header, blob):
        connection.sendall(part)


def receive(connection: socket.socket) -> tuple[Facts, Tensors] | None:
    """The next frame; None when the other side is gone."""
    head = _exactly(connection, _HEAD.size)
    if head is None:
        return None
    lengths = _HEAD.unpack(head)
    header, blob = _exactly(connection, lengths[0]), _exactly(connection, lengths[1])
    if header is None or blob is None:
        return None
    facts: Facts = json.loads(header)
    return facts, tensors_of(bytes(blob)) if blob else {}


def _exactly(connection: socket.socket, length: int) -> bytearray | None:
    whole, at = bytearray(length), 0
    with memoryview(whole) as view:
        while at < length:
            try:
                got = connection.recv_into(view[at:])
            except OSError:
                return None
            if not got:
                return None
            at += got
    return whole
