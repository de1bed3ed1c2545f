"""A seed keeps its meaning: whom each method draws, and with which probability, is as it was written down.

Only what does not depend on the processor is kept: who is drawn is compared exactly, probabilities to seven
digits. `PYTHONPATH=tests python tests/methods/test_same_draws.py` adds new methods to the file, and writes
those again that draw otherwise; the others stay as they are.
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
WRITE = "PYTHONPATH=tests python tests/methods/test_same_draws.py"


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


def alike(now: dict[str, Any], known: dict[str, Any]) -> bool:
    return now["jobs"] == known["jobs"] and now["chances"] == pytest.approx(known["chances"], rel=1e-7)


def renewed(now: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """The entries of now, but those of before where they are alike to seven digits."""
    return {
        key: known[key] if key in known and alike(entry, known[key]) else entry for key, entry in now.items()
    }


@pytest.mark.parametrize(("method", "options"), VARIANTS)
def test_whom_a_method_draws_is_what_it_was(method, options, request):
    known, case = json.loads(FILE.read_text()), request.node.callspec.id
    assert case in known, f"{FILE.name} has no {case}; add it by `{WRITE}` and commit the file"
    assert alike(drawn(method, options), known[case])


def test_writing_the_draws_again_changes_only_those_that_differ():
    known = {"same": {"jobs": "a", "chances": [0.3]}, "other": {"jobs": "a", "chances": [0.3]}}
    now = {"same": {"jobs": "a", "chances": [0.1 + 0.2]}, "other": {"jobs": "b", "chances": [0.3]}}
    assert renewed({**now, "new": now["other"]}, known) == {
        "same": {"jobs": "a", "chances": [0.3]},
        "other": now["other"],
        "new": now["other"],
    }


if __name__ == "__main__":
    table = {str(case.id): drawn(*case.values) for case in VARIANTS}
    FILE.write_text(json.dumps(renewed(table, json.loads(FILE.read_text())), indent=1) + "\n")
    print(f"{len(table)} cases in {FILE}")
