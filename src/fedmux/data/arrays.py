"""From arrays to a checked `Dataset`: what the inputs are, how many labels there are, what is held out."""

from dataclasses import replace
from typing import Any

import numpy as np

from fedmux.data import roles
from fedmux.data.dataset import Dataset, Inputs, check_part
from fedmux.data.formats import PARTS, Arrays
from fedmux.data.sets import known
from fedmux.errors import FedmuxError
from fedmux.importing import first_line

TEST_SHARE = 0.2
MANY_CLASSES = 10_000  # a label beyond it is a mistake, unless many labels are in use


def from_arrays(
    x: Any,
    y: Any,
    test_x: Any = None,
    test_y: Any = None,
    *,
    name: str = "arrays",
    classes: int | None = None,
) -> Dataset:
    """A checked data set of anything NumPy takes for an array.

    uint8 inputs of three or more dimensions are images, other whole numbers (n x length) tokens, floats
    numbers. Whole-number targets are labels 0..C-1, with C one more than the highest of both parts unless
    `classes` says more; float targets are not labels. Without a test part a random fifth is held out, the
    same at every call.
    """
    if (test_x is None) != (test_y is None):
        raise FedmuxError(f'data "{name}": give both test_x and test_y, or neither')
    inputs, targets = _numeric(x, name, "inputs"), _numeric(y, name, "targets")
    if test_x is None:
        classes = classes or _classes(targets, name)
        check_part(f'data "{name}": ', "", inputs, targets, classes)  # rows as they were given
        if len(inputs) < 2:
            raise FedmuxError(f'data "{name}": a part is held out for testing, so give at least two points')
        kept, held_out = _hold_out(len(inputs))
        inputs, test_inputs = inputs[kept], inputs[held_out]
        targets, test_targets = targets[kept], targets[held_out]
    else:
        test_inputs, test_targets = (
            _numeric(test_x, name, "test inputs"),
            _numeric(test_y, name, "test targets"),
        )
    for what, train, test in (("inputs", inputs, test_inputs), ("targets", targets, test_targets)):
        if train.shape[1:] != test.shape[1:] or train.dtype.kind != test.dtype.kind:
            raise FedmuxError(
                f'data "{name}": test {what} are {test.dtype} {test.shape[1:]} '
                f"but train {what} are {train.dtype} {train.shape[1:]}; make them alike"
            )
    kind = _kind(inputs, name)
    if targets.dtype.kind == "f":
        classes = None
    else:
        classes = classes or _classes(np.concatenate([targets, test_targets]), name)
        targets, test_targets = targets.astype(np.int64), test_targets.astype(np.int64)
    return Dataset(inputs, targets, test_inputs, test_targets, kind, classes).check(name)


def from_parts(arrays: Arrays, name: str) -> Dataset:
    """The set an .npz holds, be it `train_x` and so on or the text of roles; `name` as the user gave it."""
    if "text" in arrays:
        return roles.to_dataset(arrays, name)
    named = known().get(name)
    data = from_arrays(*(arrays[part] for part in PARTS), name=name, classes=named.classes if named else None)
    if named and data.train_x.shape[1:] != named.point:
        raise FedmuxError(
            f'data "{name}": inputs are {data.train_x.shape[1:]} instead of {named.point}; '
            "is it another set? Give it a name of its own"
        )
    if "groups" not in arrays:
        return data
    groups = arrays["groups"]
    if groups.shape != data.train_y.shape[:1] or groups.dtype.kind not in "iuU":
        raise FedmuxError(f'data "{name}": groups must be one number or name per training point')
    return replace(data, groups=np.unique(groups, return_inverse=True)[1])


def _classes(targets: np.ndarray, name: str) -> int | None:
    """One more than the highest label, if they are labels; refuses what cannot be meant as labels."""
    if targets.dtype.kind == "f":
        return None
    if targets.ndim != 1:
        raise FedmuxError(
            f'data "{name}": whole-number targets must be one label per point, not {targets.shape[1:]} each; '
            f"{_as_labels(targets)}, or floats for targets that are not labels"
        )
    highest = int(targets.max(initial=0))
    if highest >= MANY_CLASSES and highest >= 10 * len(distinct := np.unique(targets)):
        row = int(targets.argmax())
        raise FedmuxError(
            f'data "{name}": label {highest} at row {row} would make {highest + 1:,} classes, but only '
            f"{len(distinct):,} occur; number them 0..{len(distinct) - 1}, as np.unique(y, "
            "return_inverse=True)[1] does"
        )
    return highest + 1


def _as_labels(targets: np.ndarray) -> str:
    if targets.ndim == 2 and targets.shape[1] == 1:
        return "give y.ravel()"
    one_hot = targets.ndim == 2 and bool(
        ((targets == 0) | (targets == 1)).all() and (targets.sum(1) == 1).all()
    )
    return "they are one-hot: give class numbers, y.argmax(1)" if one_hot else "give class numbers"


def stratified(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows to keep and rows to hold out: the same share of every label."""
    held_out = np.concatenate(
        [
            rows[_hold_out(len(rows))[1]]
            for rows in (np.flatnonzero(labels == label) for label in np.unique(labels))
        ]
    )
    return np.setdiff1d(np.arange(len(labels)), held_out), np.sort(held_out)


def _hold_out(count: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(0).permutation(count)
    border = max(1, round(TEST_SHARE * count))
    return np.sort(order[border:]), np.sort(order[:border])


def _numeric(values: Any, name: str, what: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise FedmuxError(f'data "{name}": {what} are ragged; every point needs the same shape') from error
    except Exception as error:  # such as of torch, for a tensor on a GPU
        raise FedmuxError(f'data "{name}": {what} are not an array: {first_line(error)}') from error
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        number = "; number the classes, as np.unique(y, return_inverse=True)[1] does"
        raise FedmuxError(
            f'data "{name}": {what} must be an array of numbers, not of {array.dtype}'
            f"{number if 'targets' in what and array.dtype.kind in 'US' else ''}"
        )
    if array.dtype.kind == "b":
        return array.astype(np.int64 if "targets" in what else np.float32)
    # Training is in single precision; what overflows becomes infinity, which the check refuses.
    with np.errstate(over="ignore"):
        return array.astype(np.float32) if array.dtype.kind == "f" else array


def _kind(x: np.ndarray, name: str) -> Inputs:
    if x.dtype.kind == "f":
        return "numbers"
    if x.dtype == np.uint8 and x.ndim >= 3:
        return "images"
    if x.ndim == 2:
        return "tokens"
    raise FedmuxError(
        f'data "{name}": inputs of {x.dtype} with {x.ndim} dimensions could be anything; '
        "give images as uint8, tokens as n x length, other numbers as floats"
    )
