"""What a round costs on Flower beside the simulator: the same experiment, seconds a round by phase.

    python benchmarks/flower_round.py [--clients 4] [--rounds 6] [--method mmfl-lvr]

Two tasks (an MLP on the digits, a small CNN on the Fashion-MNIST sample), one SuperNode a client, TLS, node
keys. The first round is left out: it imports. Medians over the others, with the least and the largest.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import fedmux
from fedmux.flower.federation import up

EXPERIMENT = """
name = "overhead"
rounds = {rounds}
seed = 1
method = "{method}"

[population]
clients = {clients}
jobs = {jobs}

[[task]]
name = "digits"
data = "digits"
model = "mlp"
learning_rate = 0.1
partition = {{kind = "dirichlet", alpha = 0.5, sizes = [20, 60]}}

[[task]]
name = "clothes"
data = "fashion-mnist-sample"
model = "cnn-small"
learning_rate = 0.05
partition = {{kind = "label-share", share = 0.5, sizes = [20, 60]}}

[evaluation]
clients = false
samples = 200
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--method", default="mmfl-lvr")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, file = Path(name), Path(name) / "experiment.toml"
        file.write_text(EXPERIMENT.format(**vars(options), jobs=max(1, 3 * options.clients // 4)))
        up(file, options.clients, folder / "flower", deadline=300)
        fedmux.run(fedmux.Experiment.read(file), folder / "simulator")
        for place in ("simulator", "flower"):
            print(f"{place}, {options.clients} clients, {options.method}: seconds a round (least, largest)")
            report([entry.phases for entry in fedmux.Run(folder / place).metrics[2:]])


def report(rounds: list[dict[str, float]]) -> None:
    phases = {name: [phase.get(name, 0.0) for phase in rounds] for name in rounds[0]}
    phases["whole"] = [sum(phase.values()) for phase in rounds]
    for name, seconds in phases.items():
        print(f"  {name:10} {statistics.median(seconds):8.3f}  ({min(seconds):.3f}, {max(seconds):.3f})")


if __name__ == "__main__":
    main()
