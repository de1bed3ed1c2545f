"""Every tuple names its own block of random numbers."""

import numpy as np

from fedmux.randomness import Stream, generator, torch_seed


def test_the_same_tuple_gives_the_same_numbers_and_any_other_does_not():
    base = {"seed": 1, "stream": Stream.BATCHES, "round": 2, "client": 3, "task": 4}
    first = generator(**base).random(8)
    assert (generator(**base).random(8) == first).all()
    for key in base:
        other = generator(**{**base, key: Stream.DEAL if key == "stream" else base[key] + 1}).random(8)
        assert not np.isin(other, first).any()


def test_blocks_do_not_overlap_however_much_is_drawn():
    long = generator(0, Stream.BATCHES, round=0).random(100_000)
    assert not np.isin(generator(0, Stream.BATCHES, round=1).random(1000), long).any()


def test_seeds_for_torch_differ_too():
    assert len({torch_seed(0, Stream.MODULE, client=client) for client in range(1000)}) == 1000
