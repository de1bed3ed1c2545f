"""A seed keeps its meaning: whom each method draws, and with which probability, is as it was written down.

Only what does not depend on the processor is kept: who is drawn is compared exactly, probabilities to seven
digits. After an intended change this writes the file again:
`PYTHONPATH=tests python tests/methods/test_same_draws.py`
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import round_state
from every_method import VARIANTS, people_for

FILE = Path(__file__).with_name("same_draws.json")


def drawn(method: Any, options: dict[str, object]) -> dict[str, Any]:
    """Six rounds of one allocator, on signals that are given."""
    allocator, people = method(**options).allocator(), people_for(method)
    found, sums = hashlib.blake2b(digest_size=8), []
    for number in range(6):
        state = round_state(people, round=number, seed=7)
        jobs = allocator.plan(state).draw(state.rng())
        for values in (jobs.client, jobs.task, jobs.count):
            found.update(np.asarray(values, np.int64).tobytes())
        weights = np.arange(1, len(jobs) + 1)
        sums.append(float(weights @ jobs.probability + weights @ jobs.expected))
    return {"jobs": found.hexdigest(), "chances": sums}


@pytest.mark.parametrize(("method", "options"), VARIANTS)
def test_whom_a_method_draws_is_what_it_was(method, options, request):
    known = json.loads(FILE.read_text())[request.node.callspec.id]
    now = drawn(method, options)
    assert now["jobs"] == known["jobs"]
    assert now["chances"] == pytest.approx(known["chances"], rel=1e-7)


if __name__ == "__main__":
    table = {str(case.id): drawn(*case.values) for case in VARIANTS}
    FILE.write_text(json.dumps(table, indent=1) + "\n")
    print(f"{len(table)} cases in {FILE}")
