"""Whether a change of the code changed any result: small runs of every method, at two revisions.

    python benchmarks/same_bits.py write /tmp/before         # at the old revision
    python benchmarks/same_bits.py compare /tmp/before       # at the new one, same machine

Each method trains in several settings: plainly, in a fleet that comes, goes and fails, under privacy with
momentum, interrupted and resumed, and on two processes. What must be the same to the bit: who was drawn, with
which probability and weight, the final models, and every figure of every round but the seconds.
"""

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import fedmux
from fedmux.methods import registry

CLOCKS = ("seconds", "phases")
SECOND_PROCESS = ("mmfl-gvr*", "scaffold", "q-ffl", "fedstale", "mmfl-optimal-stale", "mmfl-group", "mifa")


def tasks(**also: Any) -> list[dict[str, Any]]:
    clothes = {"name": "clothes", "data": "fashion-mnist-sample", "model": "cnn-small", "learning_rate": 0.05}
    digits = {"name": "digits", "data": "digits", "model": "mlp", "learning_rate": 0.1}
    clothes["partition"] = {"kind": "label-share", "share": 0.3, "sizes": [10, 30]}
    digits["partition"] = {"kind": "dirichlet", "alpha": 0.5}
    return [{**task, "local_epochs": 1, **also} for task in (clothes, digits)]


def settings() -> dict[str, dict[str, Any]]:
    plain: dict[str, Any] = {
        "rounds": 5,
        "population": {"clients": 12, "rate": 0.4, "processors": {"all": 0.25, "half": 0.5, "one": 0.25}},
        "task": tasks(),
        "evaluation": {"samples": 200},
        "execution": {"device": "cpu"},
        "output": {"checkpoint_every": 2},
    }
    troubled = {
        **plain,
        "dropout": {"rate": 0.2, "correction": "estimated"},
        "stragglers": {"over_selection": 1.3},
        "event": [{"round": 2, "leave": 2}, {"round": 3, "join_tasks": ["digits"]}, {"round": 4, "join": 1}],
        "absence": {"kind": "random", "present": 0.8},
    }
    private = {**plain, "task": tasks(momentum=0.5, clip=5.0, privacy={"clip": 1.0, "noise": 0.01})}
    return {"plain": plain, "troubled": troubled, "private": private, "resumed": plain, "workers": plain}


def single(table: dict[str, Any]) -> dict[str, Any]:
    """With one task only, for methods that know no more."""
    return {**table, "task": table["task"][:1], **({"event": table["event"][:1]} if "event" in table else {})}


def digest(folder: Path) -> str:
    found = hashlib.blake2b(digest_size=12)
    found.update((folder / "allocation.bin").read_bytes())
    for model in sorted((folder / "models").iterdir()):
        found.update(model.read_bytes())
    for line in [*(folder / "metrics.jsonl").read_text().splitlines(), (folder / "summary.json").read_text()]:
        entry = {key: value for key, value in json.loads(line).items() if key not in CLOCKS}
        found.update(json.dumps(entry, sort_keys=True).encode())
    return found.hexdigest()


class Stop(Exception):
    """In the middle of a run."""


def stop(metrics: Any) -> None:
    if metrics["round"] == 3:
        raise Stop


def train(name: str, kind: str, table: dict[str, Any], folder: Path) -> str:
    if kind == "workers":
        table = {**table, "execution": {**table["execution"], "workers": 2}}
    try:
        experiment = fedmux.Experiment.model_validate({"method": name, **table})
    except ValueError:
        experiment = fedmux.Experiment.model_validate({"method": name, **single(table)})
    if kind == "resumed":
        try:
            fedmux.run(experiment, folder, observers=[stop], notice=lambda line: None)
        except Stop:
            fedmux.resume(folder, notice=lambda line: None)
    else:
        fedmux.run(experiment, folder, notice=lambda line: None)
    return digest(folder)


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1] not in ("write", "compare"):
        raise SystemExit(__doc__)
    file, found = Path(sys.argv[2]), {}
    before = json.loads(file.read_text()) if sys.argv[1] == "compare" else {}
    for name in registry():
        for kind, table in settings().items():
            if kind == "workers" and name not in SECOND_PROCESS:
                continue
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "run"
                key = f"{name} {kind}"
                try:
                    found[key] = train(name, kind, table, path)
                except fedmux.FedmuxError as refused:
                    found[key] = f"refused: {refused}"
                shutil.rmtree(path, ignore_errors=True)
            if before and found[key] != before.get(key):
                print(f"{key}: {before.get(key)} before, {found[key]} now", flush=True)
    if sys.argv[1] == "write":
        file.write_text(json.dumps(found, indent=1))
    differ = sum(found[key] != before[key] for key in found) if before else 0
    refusals = sum(value.startswith("refused") for value in found.values())
    print(f"{len(found)} cases, {refusals} refused, {differ} differ")


if __name__ == "__main__":
    main()
