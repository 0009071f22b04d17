"""Files of a model for machines that lack them: which copy is read, who writes it, and what is found damaged."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from whet._util.workers import sent_files
from whet._util.workers.sent_files import Parts, SentFiles, describe_files

FILES = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 20}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sent_files, "PART", 1000)
    (tmp_path / "model").mkdir()
    for name, content in FILES.items():
        (tmp_path / "model" / name).write_bytes(content)
    return tmp_path / "model"


def put(files: SentFiles) -> tuple[Parts, list[bytes]]:
    """The parts of the files, as references that can be waited for, and what the store holds."""
    store = list[bytes]()

    def keep(part: Any) -> asyncio.Future[Any]:
        store.append(bytes(part))
        reference = asyncio.get_running_loop().create_future()
        reference.set_result(part)
        return reference

    return files.put(cast(Any, SimpleNamespace(put=keep))), store


def describe(place: Path) -> SentFiles:
    return SentFiles(str(place), describe_files(str(place)))


async def test_a_machine_with_the_same_files_reads_its_own_and_another_one_a_copy(place: Path) -> None:
    files = describe(place)
    assert files.size == 2 + 5120 and files.find() == str(place)
    parts, store = put(files)
    assert b"".join(store) == b"".join(FILES.values()) and max(map(len, store)) == 1000
    shutil.rmtree(place)
    assert files.find() is None
    copies = await asyncio.gather(*(files.keep(parts) for _ in range(3)))
    assert len(set(copies)) == 1 and files.find() == copies[0]
    assert {path.name: path.read_bytes() for path in Path(copies[0]).iterdir()} == FILES
    assert [path.name for path in Path(copies[0]).parent.iterdir() if path.is_dir()] == [Path(copies[0]).name]


@pytest.mark.parametrize("name", [*FILES, "adapter_config.json"])
async def test_a_file_that_differs_anywhere_or_is_one_too_many_makes_another_model(
    place: Path, name: str
) -> None:
    """A change in the middle of the weights too, and a file that would change how they are read."""
    files = describe(place)
    parts, _ = put(files)
    content = bytearray(FILES.get(name, b"{}"))
    content[len(content) // 2] ^= 1
    (place / name).write_bytes(content)
    assert files.find() is None
    copy = Path(await files.keep(parts))
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == FILES


async def test_a_copy_that_is_damaged_or_half_written_is_written_again(place: Path) -> None:
    files = describe(place)
    parts, _ = put(files)
    shutil.rmtree(place)
    copy = Path(await files.keep(parts))
    (copy / "model.safetensors").write_bytes(b"")
    half = copy.with_name(f"{copy.name}-x.part")
    half.mkdir()
    assert files.find() is None
    assert Path(await files.keep(parts)) == copy and not half.exists()
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == FILES


async def test_one_gguf_file_is_sent_alone(place: Path) -> None:
    weights = place / "m.gguf"
    weights.write_bytes(b"GGUF" * 600)
    files = describe(weights)
    assert list(files.digests) == ["m.gguf"]
    parts, _ = put(files)
    weights.unlink()
    copy = Path(await files.keep(parts))
    assert copy.name == "m.gguf" and copy.read_bytes() == b"GGUF" * 600 and files.find() == str(copy)


async def test_files_that_change_while_they_are_sent_and_a_full_disk_are_errors(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = describe(place)
    (place / "config.json").write_bytes(b"[]")
    parts, _ = put(files)
    with pytest.raises(OSError, match="changed while they were sent"):
        await files.keep(parts)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(OSError, match=r"no room for 0\.0 MiB"):
        await files.keep(parts)
