"""Benchmarks whose figures the documents quote can still be run."""

import argparse
import importlib.util
from pathlib import Path

import pytest

MILLION = Path(__file__).parents[1] / "benchmarks" / "million_clients.py"


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("random", ""),
        ("mmfl-lvr", "draws=dependent-rounding,report_share=0.5"),  # learns from whom it did not ask
        ("mmfl-optimal-stale", "draws=systematic"),
        ("fedfairmmfl", "draws=systematic"),  # has no such option
    ],
)
def test_the_benchmark_of_a_million_clients_runs_for_a_few(method, options, capsys):
    spec = importlib.util.spec_from_file_location("million_clients", MILLION)
    million = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(million)
    arguments = argparse.Namespace(clients=200, tasks=3, jobs="8,20", rounds=2, options=options)
    million.measure(method, arguments)
    said = capsys.readouterr().out
    assert said.count(" jobs, round ") == 4 and "plan" in said and "draw" in said and "peak memory" in said
    assert ("systematic" in said) == (method == "mmfl-optimal-stale")
