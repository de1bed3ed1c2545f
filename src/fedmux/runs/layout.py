"""A run is a directory: configuration, versions, metrics, allocation history, checkpoints, final models.

    experiment.toml      the resolved configuration; `fedmux run` takes it again
    environment.json     versions and hardware
    population.npz       processors, data sizes and eligibility of every client, true clusters
    metrics.jsonl        one line for each round
    allocation.bin       one record for each job (dtype ALLOCATION)
    checkpoints/         round-000012.safetensors: models and state; the last two, none once it is complete
    models/              final weights of each task
    summary.json         final figures; its presence says that the run is complete
    state.json           running, interrupted or failed, and why; touched every few seconds by a run at work
    clients.json         only with real clients: the number of each client's own id
    releases.npy         only with real clients: updates that each was asked for, of each task
    error.log            only of a run that the user's own code ended: all that it said
    log.jsonl            only with real clients: what happened when

Both logs only grow, and a checkpoint says how long they were: resuming cuts them there.
"""

import numpy as np

ALLOCATION = np.dtype(
    [
        ("round", "<u4"),
        ("client", "<u4"),
        ("task", "<u2"),
        ("count", "<u2"),
        ("probability", "<f4"),
        ("weight", "<f4"),
    ]
)

EXPERIMENT, ENVIRONMENT, POPULATION = "experiment.toml", "environment.json", "population.npz"
METRICS, JOBS = "metrics.jsonl", "allocation.bin"  # the two logs
CHECKPOINTS, MODELS, SUMMARY, LOCK = "checkpoints", "models", "summary.json", "lock"
ERROR, STATE = "error.log", "state.json"
CLIENTS, RELEASES, EVENTS = "clients.json", "releases.npy", "log.jsonl"  # only with real clients

# A comparison's folder: what is compared, a run for each cell, and the resulting table.
COMPARISON, CELLS, RUNS, RESULTS = "comparison.toml", "experiments", "runs", "results.json"
