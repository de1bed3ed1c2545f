"""A small PNG decoder (8-bit RGB or RGBA, not interlaced): enough for images packed in sheets.

After the PNG specification, sections 9 (filtering) and 11 (chunks). Checksums of chunks are not looked at:
what comes out is compared with a known SHA-256 instead.
"""

import struct
import zlib

import numpy as np

from fedmux.errors import FedmuxError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {2: 3, 6: 4}  # colour type -> RGB, RGBA


def decode_png(content: bytes, where: str) -> np.ndarray:
    """height x width x channels, uint8."""
    if not content.startswith(SIGNATURE):
        raise FedmuxError(f"{where} is not a PNG file")
    header, packed = b"", []
    position = len(SIGNATURE)
    while position + 8 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, position)
        body = content[position + 8 : position + 8 + length]
        if kind == b"IHDR":
            header = body
        elif kind == b"IDAT":
            packed.append(body)
        position += 12 + length
    if len(header) != 13:
        raise FedmuxError(f"{where} is a PNG file without a header; fetch it again")
    width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", header)
    if depth != 8 or colour not in CHANNELS or interlace:
        raise FedmuxError(f"{where} must be an 8-bit RGB or RGBA PNG without interlacing")
    channels = CHANNELS[colour]
    try:
        raw = zlib.decompress(b"".join(packed))
    except zlib.error as error:
        raise FedmuxError(f"{where} is damaged ({error}); fetch it again") from error
    if len(raw) != height * (1 + width * channels):
        raise FedmuxError(f"{where} holds {len(raw)} bytes of pixels, not those of {width} x {height}")
    rows = np.frombuffer(raw, np.uint8).reshape(height, 1 + width * channels)
    return _undo_filters(rows[:, 0], rows[:, 1:].reshape(height, width, channels).copy(), where)


def _undo_filters(kinds: np.ndarray, image: np.ndarray, where: str) -> np.ndarray:
    """Rows filtered with None or Sub stand alone: all are undone at once. The rest follow in order."""
    if kinds.max() > 4:
        raise FedmuxError(f"{where} has a row with the unknown PNG filter {kinds.max()}; fetch it again")
    image[kinds == 1] = np.cumsum(image[kinds == 1], axis=1, dtype=np.uint8)
    for row in np.flatnonzero(kinds >= 2):
        above = image[row - 1] if row else np.zeros_like(image[0])
        if kinds[row] == 2:
            image[row] += above
        else:
            predict = _average if kinds[row] == 3 else _paeth
            for channel in range(image.shape[2]):
                line, up = image[row, :, channel].tolist(), above[:, channel].tolist()
                left = corner = 0
                for x, residual in enumerate(line):
                    left = line[x] = (residual + predict(left, up[x], corner)) & 255
                    corner = up[x]
                image[row, :, channel] = line
    return image


def _average(left: int, up: int, corner: int) -> int:
    return (left + up) // 2


def _paeth(left: int, up: int, corner: int) -> int:
    """Whichever neighbour is nearest to left + up - corner; on ties left before up before corner."""
    guess = left + up - corner
    return min((left, up, corner), key=lambda neighbour: abs(guess - neighbour))
