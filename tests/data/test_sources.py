"""Names, paths, functions and commands: what `load`, `add`, `get` and `available` do with real files."""

import gzip
import struct
import sys
import tarfile
import threading
import time
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from fedmux.data import Dataset, fetch, from_arrays, load, sets
from fedmux.data.add import add
from fedmux.data.fetch import checksum
from fedmux.data.formats import read_npz
from fedmux.data.sets import digits, emnist, fashion_mnist, fashion_mnist_sample
from fedmux.data.sources import Available, available
from fedmux.errors import FedmuxError
from refusals import refused


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch, tmp_path):
    """An empty cache, and no Debian folder, whatever machine this is."""
    monkeypatch.setenv("FEDMUX_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(fashion_mnist, "DEBIAN", tmp_path / "debian")


def image_parts(train: int = 30, test: int = 10, *shape: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "train_x": rng.integers(0, 256, (train, *(shape or (28, 28))), np.uint8),
        "train_y": (np.arange(train) % 10).astype(np.uint8),
        "test_x": rng.integers(0, 256, (test, *(shape or (28, 28))), np.uint8),
        "test_y": (np.arange(test) % 10).astype(np.uint8),
    }


def write_idx(folder, arrays, *, prefix="", test="t10k", suffix=".gz"):
    folder.mkdir(exist_ok=True)
    for part, name in (("train", "train"), ("test", test)):
        for key, kind in (("x", "images-idx3"), ("y", "labels-idx1")):
            array = arrays[f"{part}_{key}"]
            head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
            content = head + array.tobytes()
            file = folder / f"{prefix}{name}-{kind}-ubyte{suffix}"
            file.write_bytes(gzip.compress(content) if suffix == ".gz" else content)
    return folder


def assert_holds(data: Dataset, arrays: dict[str, np.ndarray]) -> None:
    for key, array in arrays.items():
        assert np.array_equal(getattr(data, key), array), key


# The embedded sets


def test_the_sample_is_the_one_it_was_when_its_checksum_was_taken():
    assert checksum(fashion_mnist_sample.read()) == fashion_mnist_sample.SET.sha256


def test_the_sample_has_as_many_images_of_each_class_and_loads_at_once():
    begin = time.perf_counter()
    data = load("fashion-mnist-sample")
    assert time.perf_counter() - begin < 2  # 0.15 s on an idle machine
    assert np.bincount(data.train_y).tolist() == [600] * 10
    assert np.bincount(data.test_y).tolist() == [100] * 10
    assert (data.train_x.shape, data.train_x.dtype) == ((6000, 28, 28), np.uint8)
    assert (data.inputs, data.classes) == ("images", 10)


def test_a_sample_made_again_is_the_same_and_reads_back_as_packed(tmp_path):
    write_idx(tmp_path / "official", full := image_parts(200, 100))
    chosen = fashion_mnist_sample.choose(full, train_per_class=7, test_per_class=3)
    assert np.bincount(chosen["train_y"]).tolist() == [7] * 10
    assert checksum(chosen) == checksum(
        fashion_mnist_sample.choose(full, train_per_class=7, test_per_class=3)
    )
    (tmp_path / "sample.npz.xz").write_bytes(fashion_mnist_sample.pack(chosen))
    assert checksum(read_npz(tmp_path / "sample.npz.xz")) == checksum(chosen)


def test_digits_are_bytes_split_alike_every_time():
    data = load("digits")
    assert (data.inputs, data.classes, data.train_x.dtype) == ("images", 10, np.uint8)
    assert (len(data.train_x), len(data.test_x)) == (digits.TRAIN, digits.TEST)
    assert (data.train_x.min(), data.train_x.max()) == (0, 255)
    shares = np.bincount(data.test_y) / (np.bincount(data.test_y) + np.bincount(data.train_y))
    assert np.allclose(shares, 0.2, atol=0.005)
    assert_holds(load("digits"), {"train_x": data.train_x, "test_y": data.test_y})


# Names


@pytest.mark.parametrize("name", ["mnist", "emnist", "cifar10", "shakespeare", "fashion-mnist"])
def test_a_missing_set_says_how_to_get_it(name):
    with pytest.raises(FedmuxError, match=f"fedmux data get {name}") as caught:
        load(name)
    assert "\n" not in str(caught.value)


def test_a_missing_fashion_mnist_names_the_sample_but_does_not_become_it():
    with pytest.raises(FedmuxError, match="fashion-mnist-sample"):
        load("fashion-mnist")


def test_an_unknown_name_gets_the_closest_and_all_known_ones():
    with refused('data "cifar-10"', ('did you mean "cifar10"?', *sorted(sets.known()))):
        load("cifar-10")


def test_fashion_mnist_is_read_from_debians_folder():
    write_idx(fashion_mnist.DEBIAN, arrays := image_parts())
    assert_holds(load("fashion-mnist"), arrays)


# Paths and functions


def test_an_npz_on_disk_is_loaded_with_its_groups(tmp_path):
    groups = np.array(["b", "a", "b"] * 10)
    np.savez(tmp_path / "mine.npz", **image_parts(), groups=groups)
    data = load(str(tmp_path / "mine.npz"))
    assert_holds(data, image_parts())
    assert data.groups is not None
    assert data.groups.tolist() == [1, 0, 1] * 10


def test_groups_of_another_length_are_refused(tmp_path):
    np.savez(tmp_path / "mine.npz", **image_parts(), groups=np.zeros(5, int))
    with pytest.raises(FedmuxError, match="groups must be one number or name per training point"):
        load(str(tmp_path / "mine.npz"))


def test_a_path_that_is_not_there_is_named():
    with pytest.raises(FedmuxError, match=r"^nowhere\.npz does not exist$"):
        load("nowhere.npz")


MODULE = """
import numpy as np
from fedmux.data import from_arrays
x, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 4
def pair(): return x, y
def four(): return x[:15], y[:15], x[15:], y[15:]
def ready(): return from_arrays(x, y)
def late():
    import {name}_sibling
    return {name}_sibling.pair
def wrong(): return {{"x": x}}
def broken(): raise RuntimeError("no\\nsensor")
nothing = 3
"""


@pytest.fixture
def module(monkeypatch, tmp_path, request):
    """A module of its own for each test, in the current folder, which is not on the path."""
    name = f"own_data_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(name=name))
    (tmp_path / f"{name}_sibling.py").write_text("pair = [[1.0], [2.0], [3.0]], [0, 1, 0]\n")
    monkeypatch.chdir(tmp_path)
    return name


@pytest.mark.parametrize(
    ("function", "train", "test"), [("pair", 16, 4), ("four", 15, 5), ("ready", 16, 4), ("late", 2, 1)]
)
def test_a_function_in_the_current_folder_gives_a_data_set(module, function, train, test):
    before = list(sys.path)
    data = load(f"{module}:{function}")
    assert sys.path == before
    assert (len(data.train_x), len(data.test_x), data.inputs) == (train, test, "numbers")
    assert data.train_x.dtype == np.float32


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("wrong", "it returned dict; return a fedmux Dataset"),
        ("broken", "calling it failed: RuntimeError: no"),
        ("nothing", "it is not a function"),
        ("absent", "has no absent"),
    ],
)
def test_a_function_that_gives_no_data_says_what_is_wrong(module, function, says):
    before = list(sys.path)
    with pytest.raises(FedmuxError, match=says) as caught:
        load(f"{module}:{function}")
    assert "\n" not in str(caught.value)
    assert sys.path == before


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(FedmuxError, match=r"no module not_a_module; install it"):
        load("not_a_module:function")


# Arrays


def test_what_arrays_are_is_read_off_their_types():
    labels = np.array([0, 1, 6, 1])
    assert from_arrays(np.zeros((4, 8, 8), np.uint8), labels).inputs == "images"
    assert from_arrays(np.zeros((4, 8), np.int32), labels).inputs == "tokens"
    numbers = from_arrays(np.zeros((4, 8)), labels, np.ones((1, 8)), [9])
    assert (numbers.inputs, numbers.classes, numbers.train_x.dtype) == ("numbers", 10, np.float32)
    regression = from_arrays([[1.0], [2.0]], [0.5, 1.5], [[1.0]], [2.0])
    assert (regression.classes, regression.train_y.dtype) == (None, np.float32)


def test_a_pair_is_split_at_random_the_same_way_every_time():
    x, y = np.arange(50.0)[:, None], np.arange(50) % 5
    first, second = from_arrays(x, y), from_arrays(x, y)
    assert (len(first.train_x), len(first.test_x)) == (40, 10)
    assert_holds(second, {"train_x": first.train_x, "test_x": first.test_x, "test_y": first.test_y})
    assert sorted(np.concatenate([first.train_x, first.test_x]).ravel()) == list(range(50))
    assert np.array_equal(first.test_x.ravel() % 5, first.test_y)
    assert not np.array_equal(first.test_x.ravel(), np.arange(40, 50))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([[1.0], [np.nan], [2.0]], [0, 1, 0], [[1.0]], [1]), "train input 1 holds NaN"),
        (([[1.0], [1e300]], [0, 1], [[1.0]], [1]), "train input 1 holds NaN or infinity"),
        (([[1.0], [2.0]], [0.0, np.inf], [[1.0]], [1.0]), "train target 1"),
        (([[1.0], [2.0]], [0, -1], [[1.0]], [1]), "label -1 at row 1 is out of range"),
        (([[1.0], [2.0]], [0]), "2 inputs but 1 targets"),
        (([[1.0]], [0]), "at least two points"),
        (([[1.0], [2.0]], [0, 1], [[1.0]]), "both test_x and test_y"),
        (([[1.0], [2.0]], [0, 1], [[1.0, 2.0]], [0]), "make them alike"),
        (([[1.0], [2.0]], [[0, 1], [1, 0]]), "one label per point"),
        (([[1.0], [2.0, 3.0]], [0, 1]), "ragged"),
        ((["a", "b"], [0, 1]), "array of numbers"),
        ((np.zeros((3, 4, 4), np.int64), [0, 1, 0]), "could be anything"),
        ((np.zeros((0, 4)), [], [[1.0] * 4], [0.0]), "the train part is empty"),
    ],
)
def test_arrays_that_would_spoil_training_are_refused(arguments, says):
    with pytest.raises(FedmuxError, match=says):
        from_arrays(*arguments)


# add


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("one_file", [False, True])
def test_official_idx_files_can_be_added(tmp_path, suffix, one_file):
    folder = write_idx(tmp_path / "official", arrays := image_parts(), suffix=suffix)
    path = add("mnist", folder / f"t10k-labels-idx1-ubyte{suffix}" if one_file else folder)
    assert path == tmp_path / "cache" / "mnist.npz"
    assert_holds(load("mnist"), arrays)


def test_emnist_files_are_set_upright_when_added(tmp_path):
    arrays = image_parts()
    lying = {key: array.transpose(0, 2, 1) if array.ndim == 3 else array for key, array in arrays.items()}
    folder = write_idx(tmp_path / "official", lying, prefix="emnist-balanced-", test="test")
    add("emnist", folder)
    assert_holds(load("emnist"), arrays)
    assert load("emnist").classes == 47


def test_cifars_archive_can_be_added(tmp_path):
    arrays = image_parts(10, 2, 32, 32, 3)
    rows = {
        part: np.concatenate(
            [arrays[f"{part}_y"][:, None], arrays[f"{part}_x"].transpose(0, 3, 1, 2).reshape(-1, 3072)],
            axis=1,
        )
        for part in ("train", "test")
    }
    for number in range(5):
        (tmp_path / f"data_batch_{number + 1}.bin").write_bytes(rows["train"][2 * number :][:2].tobytes())
    (tmp_path / "test_batch.bin").write_bytes(rows["test"].tobytes())
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as tar:
        for file in tmp_path.glob("*.bin"):
            tar.add(file, f"cifar-10-batches-bin/{file.name}")
    add("cifar10", tmp_path / "cifar-10-binary.tar.gz")
    assert_holds(load("cifar10"), arrays)


def test_a_set_of_a_new_name_can_be_added_loaded_and_listed(tmp_path):
    np.savez(tmp_path / "mine.npz", **image_parts(30, 10, 5, 5))
    add("my-set", tmp_path / "mine.npz")
    assert_holds(load("my-set"), image_parts(30, 10, 5, 5))
    row = next(row for row in available() if row.name == "my-set")
    assert (row.where, row.train, row.test, row.classes) == ("cache", 30, 10, 10)
    with pytest.raises(FedmuxError, match='did you mean "my-set"'):
        load("my-sett")


def test_plays_in_a_table_can_be_added(tmp_path):
    line = "The quality of mercy is not strain'd, it droppeth as the gentle rain"
    (tmp_path / "plays.tsv").write_text(f"Venice\tPortia\t{line}\n" * 20)
    add("shakespeare", tmp_path / "plays.tsv")
    data = load("shakespeare")
    row = next(row for row in available() if row.name == "shakespeare")
    assert (row.where, row.train, row.test) == ("cache", len(data.train_x), len(data.test_x))


@pytest.mark.parametrize(
    ("name", "file", "says"),
    [
        ("mnist", "nowhere", "does not exist"),
        ("mnist", "notes.txt", "of no known kind"),
        ("mnist", "", "holds no known file"),
        ("mnist", "small.npz", r"inputs are \(5, 5\) instead of \(28, 28\)"),
        ("mnist", "label12.npz", "label 12 at row 3 is out of range; labels must be 0..9"),
        ("shakespeare", "small.npz", 'lacks "text"'),
        ("digits", "small.npz", "cannot be replaced"),
        ("../escape", "small.npz", "cannot name a data set"),
        ("a:b", "small.npz", "cannot name a data set"),
    ],
)
def test_what_cannot_be_added_is_refused_in_one_line_and_leaves_nothing(tmp_path, name, file, says):
    source = tmp_path / "given"
    source.mkdir()
    (source / "notes.txt").write_text("hello")
    np.savez(source / "small.npz", **image_parts(30, 10, 5, 5))
    wrong = image_parts()
    wrong["train_y"][3] = 12
    np.savez(source / "label12.npz", **wrong)
    with pytest.raises(FedmuxError, match=says) as caught:
        add(name, source / file)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_written_says_which_setting_moves_it(tmp_path, monkeypatch):
    np.savez(tmp_path / "mine.npz", **image_parts())
    monkeypatch.setenv("FEDMUX_DATA", str(tmp_path / "mine.npz" / "below-a-file"))
    with pytest.raises(FedmuxError, match="FEDMUX_DATA"):
        add("mine", tmp_path / "mine.npz")


# available


def test_the_list_says_where_each_set_is_and_how_to_get_it(tmp_path):
    write_idx(fashion_mnist.DEBIAN, image_parts())
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "cifar10.npz").write_bytes(b"half a file")
    rows = {row.name: row for row in available()}
    assert list(rows) == list(sets.known())
    assert rows["fashion-mnist-sample"][1:5] == ("embedded", 6000, 1000, 10)
    assert rows["fashion-mnist"].where == "Debian folder"
    assert (rows["mnist"].where, rows["mnist"].get) == ("missing", "fedmux data get mnist")
    assert rows["cifar10"].where == "damaged"
    with pytest.raises(
        FedmuxError, match=r"cifar10\.npz is damaged; delete it, then: fedmux data get cifar10"
    ):
        load("cifar10")


# get


@pytest.fixture
def server(tmp_path):
    """A web server on this machine, with a folder of its own."""
    root = tmp_path / "www"
    root.mkdir()
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(root))) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield root, f"http://127.0.0.1:{http.server_port}/"
        http.shutdown()


def expect(monkeypatch, module, arrays):
    monkeypatch.setattr(module, "SET", replace(module.SET, sha256=checksum(arrays)))


def test_a_set_is_fetched_from_the_official_place_once(server, monkeypatch, tmp_path):
    root, address = server
    write_idx(root, arrays := image_parts())
    expect(monkeypatch, fashion_mnist, arrays)
    monkeypatch.setattr(fashion_mnist, "OFFICIAL", address)
    told: list[str] = []
    path = fetch.get("fashion-mnist", progress=told.append)
    assert [file.name for file in (tmp_path / "cache").iterdir()] == ["fashion-mnist.npz"]
    assert_holds(load("fashion-mnist"), arrays)
    assert told[:2] == [
        "fashion-mnist: trying Debian's folder",
        "fashion-mnist: Debian's folder: not installed",
    ]
    assert any("train-images-idx3-ubyte.gz" in line for line in told)
    told.clear()
    assert fetch.get("fashion-mnist", progress=told.append) == path
    assert told == [f"fashion-mnist is already there: {path} (delete it to fetch it again)"]


def test_this_machine_comes_before_the_official_place(monkeypatch):
    write_idx(fashion_mnist.DEBIAN, arrays := image_parts())
    expect(monkeypatch, fashion_mnist, arrays)
    told: list[str] = []
    fetch.get("fashion-mnist", progress=told.append)
    assert told == ["fashion-mnist: trying Debian's folder"]


def test_a_set_with_another_checksum_is_refused_and_the_remedy_named(server, monkeypatch, tmp_path):
    root, address = server
    write_idx(root, image_parts())
    monkeypatch.setattr(fashion_mnist, "OFFICIAL", address)
    with pytest.raises(
        FedmuxError, match=r"checksum differs.*apt-get install dataset-fashion-mnist"
    ) as caught:
        fetch.get("fashion-mnist")
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_place_without_the_files_is_told_with_its_answer(server, monkeypatch):
    monkeypatch.setattr(emnist, "OFFICIAL", server[1] + "gzip.zip")
    with pytest.raises(FedmuxError, match=r"the official place: .*fedmux data add emnist PATH"):
        fetch.get("emnist")


@pytest.mark.parametrize("per_class", [400, 399])
def test_emnist_is_taken_only_if_it_is_the_balanced_split(server, monkeypatch, tmp_path, per_class):
    root, address = server
    counts = {"train": 2400, "test": per_class}
    arrays = {
        f"{part}_{key}": np.zeros((47 * count, 28, 28), np.uint8)
        if key == "x"
        else np.repeat(np.arange(47, dtype=np.uint8), count)
        for part, count in counts.items()
        for key in "xy"
    }
    folder = write_idx(tmp_path / "gzip", arrays, prefix="emnist-balanced-", test="test")
    with zipfile.ZipFile(root / "gzip.zip", "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"gzip/{file.name}")
    monkeypatch.setattr(emnist, "OFFICIAL", address + "gzip.zip")
    if per_class == 400:
        fetch.get("emnist")
        assert_holds(load("emnist"), {"train_y": arrays["train_y"]})
    else:
        with pytest.raises(FedmuxError, match="not the balanced split"):
            fetch.get("emnist")


@pytest.mark.parametrize("name", ["digits", "fashion-mnist-sample"])
def test_an_embedded_set_needs_no_fetching(name):
    with pytest.raises(FedmuxError, match="nothing to fetch"):
        fetch.get(name)


def test_only_known_sets_can_be_fetched():
    with pytest.raises(FedmuxError, match=r"cannot be fetched; known are .*mnist"):
        fetch.get("imagenet")


# A set of its own file

NEW_SET = """
import numpy as np
from fedmux.data.downloads import download
from fedmux.data.formats import read_npz
from fedmux.data.sets import NamedSet

def fetch(folder, report):
    return read_npz(download("{address}tiny.npz", folder / "tiny.npz", report))

SET = NamedSet(name="tiny-set", classes=10, point=(5, 5), places=(("its place", fetch),), sha256="{sha256}")
"""


def row_of(name: str) -> Available:
    [row] = [row for row in available() if row.name == name]
    return row


def tiny_set(folder, monkeypatch, text: str) -> None:
    """A module of the package, as it is after the file was added."""
    (folder / "tiny.py").write_text(text)
    monkeypatch.setattr(sets, "__path__", [*sets.__path__, str(folder)])
    monkeypatch.delitem(sys.modules, "fedmux.data.sets.tiny", raising=False)


def test_a_module_of_the_package_is_all_that_a_new_set_takes(server, monkeypatch, tmp_path):
    root, address = server
    np.savez(root / "tiny.npz", **(arrays := image_parts(30, 10, 5, 5)))
    tiny_set(tmp_path, monkeypatch, NEW_SET.format(address=address, sha256=checksum(arrays)))
    row = row_of("tiny-set")
    assert (row.where, row.classes, row.get) == ("missing", 10, "fedmux data get tiny-set")
    with pytest.raises(FedmuxError, match="is not on this machine; get it with: fedmux data get tiny-set"):
        load("tiny-set")
    fetch.get("tiny-set")
    assert_holds(load("tiny-set"), arrays)
    row = row_of("tiny-set")
    assert (row.where, row.train, row.test) == ("cache", 30, 10)
    (root / "tiny.npz").unlink()
    np.savez(tmp_path / "other.npz", **image_parts(30, 10, 4, 4))
    with pytest.raises(FedmuxError, match=r"inputs are \(4, 4\) instead of \(5, 5\)"):
        add("tiny-set", tmp_path / "other.npz")


PLACE = """
from fedmux.data.sets import NamedSet
from test_sources import image_parts

def fetch(folder, report):
    arrays = image_parts(30, 10, {shape})
    return {{key.removeprefix("{lost}"): array for key, array in arrays.items()}}

SET = NamedSet(name="tiny-set", classes=10, point=(5, 5), places=(("its place", fetch),), by_hand="ask")
"""


@pytest.mark.parametrize(
    ("shape", "lost", "says"),
    [("5, 5", "train_", ('lacks "train_x"', "train_x, train_y")), ("4, 4", "", ("(4, 4)", "(5, 5)"))],
)
def test_what_could_not_be_read_back_is_not_kept(shape, lost, says, monkeypatch, tmp_path):
    tiny_set(tmp_path, monkeypatch, PLACE.format(shape=shape, lost=lost))
    with refused(('data "tiny-set"', "its place"), says):
        fetch.get("tiny-set")
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_checksum_of_a_set_without_one_is_told(monkeypatch, tmp_path):
    tiny_set(tmp_path, monkeypatch, PLACE.format(shape="5, 5", lost=""))
    told: list[str] = []
    fetch.get("tiny-set", progress=told.append)
    assert checksum(image_parts(30, 10, 5, 5)) in told[-1]


def test_a_module_without_a_set_is_named(monkeypatch, tmp_path):
    tiny_set(tmp_path, monkeypatch, "NAME = 'tiny-set'")
    with refused("data/sets/tiny.py", "SET = NamedSet("):
        available()
