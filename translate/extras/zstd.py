"""Text that is packed with zstd, by the package zstandard."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, BinaryIO

from typing_extensions import Buffer

from translate.errors import UserError
from translate.wording import install

CHUNK = 1 << 17  # bytes that are read at a time


def unpacked(stream: BinaryIO) -> io.BufferedReader:
    """Return a stream of the text in a packed one."""
    return io.BufferedReader(_Unpacked(stream))


def packed(file: BinaryIO, mode: str) -> Any:
    """Return a stream that writes text, packed, to a file that stays open; `mode` is wb."""
    assert mode == "wb"
    return _library().ZstdCompressor().stream_writer(file, closefd=False)


class _Unpacked(io.RawIOBase):
    """The text of a packed stream; OSError where it is damaged or cut off."""

    def __init__(self, stream: BinaryIO) -> None:
        self.text, self.left = _chunks(stream), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        while not self.left:
            chunk = next(self.text, None)
            if chunk is None:
                return 0
            self.left = chunk
        count = min(len(view), len(self.left))
        view[:count], self.left = self.left[:count], self.left[count:]
        return count


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    library = _library()
    frame = None  # a file may have several, one after the other
    while packed := stream.read(CHUNK):
        while packed:
            frame = frame or library.ZstdDecompressor().decompressobj()
            try:
                yield frame.decompress(packed)
            except library.ZstdError as error:
                raise OSError(str(error)) from None
            packed, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise OSError("its end is missing")


def _library() -> Any:
    try:
        import zstandard
    except ModuleNotFoundError:
        raise UserError(
            f"text packed with zstd needs the package zstandard: {install('zstd')}"
        ) from None
    return zstandard
