"""Recruitment before training: bids in an experiment, who may train what, and what a run records."""

import numpy as np
import pytest

import fedmux
from conftest import ONE_TASK, experiment_of, resumes_to_the_same_bits, table
from fedmux.experiment import Experiment
from fedmux.experiment.mistakes import validated
from fedmux.methods import registry
from fedmux.randomness import Stream, generator
from fedmux.recruitment import max_min_fair
from fedmux.recruitment.bids import Linear, Normal, Uniform, read_bids
from fedmux.training.assembly import assemble

UNIFORM = {"kind": "uniform"}


def described(bids=UNIFORM, mechanism="max-min-fair", budget=5.0, **changes) -> dict:
    return table(recruitment={"mechanism": mechanism, "budget": budget, "bids": bids}, **changes)


def experiment(*arguments, **changes) -> Experiment:
    return validated(Experiment, described(*arguments, **changes), "test")


def everybody(**changes) -> dict:
    return {"clients": 12, "jobs": 6, **changes}


@pytest.mark.parametrize(
    ("bids", "laws"),
    [
        (UNIFORM, [Uniform(), Uniform()]),
        ([{"kind": "linear", "high": 2.0}], [Linear(high=2.0)] * 2),
        ([{"kind": "normal", "mean": 0.2, "std": 0.2}, UNIFORM], [Normal(mean=0.2, std=0.2), Uniform()]),
    ],
)
def test_bids_are_drawn_for_each_task_from_its_distribution(bids, laws):
    award = assemble(experiment(bids, population=everybody())).award
    drawn = [law.draw(12, generator(0, Stream.BIDS, task=task)) for task, law in enumerate(laws)]
    wanted = max_min_fair(np.stack(drawn, axis=1), 5.0)
    assert (award.share == wanted.share).all() and (award.payment == wanted.payment).all()
    other = assemble(experiment(bids, population=everybody(), seed=1)).award
    assert (other.share != award.share).any()


def bids_file(folder, text: str):
    path = folder / "bids.csv"
    path.write_text(text)
    return str(path)


def test_bids_from_a_file_go_by_the_names_of_the_tasks(tmp_path):
    bids = np.random.default_rng(0).random((12, 2)).round(3)
    rows = [f"u{i},{b},{a}" for i, (a, b) in enumerate(bids)]
    rows[3] = f"u3,,{bids[3, 0]}"
    bids[3, 1] = np.nan
    path = bids_file(tmp_path, "user,b,a\n" + "\n".join(rows) + "\n")
    award = assemble(experiment(path, population=everybody())).award
    assert (award.share == max_min_fair(bids, 5.0).share).all()


def test_a_file_of_bids_may_leave_out_names_and_a_user_may_bid_for_nothing(tmp_path):
    users, tasks, bids = read_bids(bids_file(tmp_path, "﻿a, b\n0.5,1e-1\n,\n\n 2 , \n"))
    assert (users, tasks) == (["0", "1", "2"], ["a", "b"])
    assert np.array_equal(bids, [[0.5, 0.1], [np.nan, np.nan], [2.0, np.nan]], equal_nan=True)


def test_who_was_not_recruited_for_a_task_cannot_train_it():
    plain = assemble(experiment_of())
    recruited = assemble(experiment(budget=3.0))
    has, share = plain.population.eligible, recruited.award.share
    assert not has.all() and 0 < share.sum() < has.sum()
    assert (recruited.population.eligible == (has & (share > 0))).all()
    assert not share[~has].any()  # nobody bids for a task it does not have
    assert (recruited.population.sizes == plain.population.sizes).all()


FRACTIONAL = {"bids": [UNIFORM, {"kind": "linear"}], "budget": 4.0, "population": everybody()}


def test_a_fraction_of_a_user_takes_part_in_that_fraction_of_the_rounds():
    setting = assemble(experiment(**FRACTIONAL))
    part = setting.award.share % 1 > 0
    fraction = float(setting.award.share[part][0])
    assert part.sum() == 1 and 0.1 < fraction < 0.9
    rounds = np.array([setting.in_round(number).eligible for number in range(200)])
    assert (rounds[:, ~part] == (setting.award.share[~part] == 1)).all()
    chance = np.sqrt(fraction * (1 - fraction) / 200)
    assert rounds[:, part].mean() == pytest.approx(fraction, abs=4.5 * chance)
    assert (assemble(experiment(**FRACTIONAL)).in_round(17).eligible == rounds[17]).all()  # by seed and round


def test_a_run_records_payments_and_take_up(tmp_path):
    chosen = experiment(**FRACTIONAL, rounds=2)
    award = assemble(chosen).award
    run = fedmux.run(chosen, tmp_path / "run")
    recorded = run.summary["recruitment"]
    assert recorded["take_up"] == pytest.approx(dict(zip("ab", award.take_up)))
    assert recorded["paid"] == pytest.approx(award.paid) and recorded["budget"] == 4.0
    assert recorded["leftover"] == pytest.approx(4.0 - award.paid, abs=1e-12)
    kept = np.load(tmp_path / "run" / "population.npz")
    assert (kept["award_share"] == award.share).all() and (kept["award_payment"] == award.payment).all()
    assert (kept["eligible"] == (award.share > 0)).all()
    assert award.share[run.allocation["client"], run.allocation["task"]].all()


def test_a_posted_price_has_no_budget_to_record(tmp_path):
    run = fedmux.run(experiment(mechanism="posted-price", budget=0.6, rounds=1), tmp_path / "run")
    assert run.summary["recruitment"]["budget"] is None and run.summary["recruitment"]["leftover"] is None
    assert run.summary["recruitment"]["paid"] == pytest.approx(
        0.6 * sum(run.summary["recruitment"]["take_up"].values())
    )


NOBODY = "a,b\n" + "0.1,12\n" * 11 + "0.1,10\n"  # b gets 0.49 of its cheapest user, and in some rounds nobody


def recruited_for(method: str, bids, rounds: int) -> Experiment:
    small = described(bids, budget=10.0 if isinstance(bids, str) else 4.0, method=method, rounds=rounds)
    small["population"] = everybody(jobs=4)
    if method in ONE_TASK:
        small["task"], small["recruitment"]["bids"] = small["task"][:1], UNIFORM
    return experiment_of(**small)


@pytest.mark.parametrize("method", registry())
def test_every_method_trains_those_recruited_and_nobody_else(method, tmp_path):
    for name, bids, rounds in (
        ("usual", FRACTIONAL["bids"], 2),
        ("nobody", bids_file(tmp_path, NOBODY), 4),
    ):
        chosen = recruited_for(method, bids, rounds)
        setting = assemble(chosen)
        there = np.array([setting.in_round(number).available for number in range(rounds)])
        if name == "nobody" and method not in ONE_TASK:
            assert set(there.sum(1)[:, 1]) == {0, 1}
        run = fedmux.run(chosen, tmp_path / name)
        jobs = run.allocation
        assert run.summary["rounds"] == rounds and len(jobs)
        assert there[jobs["round"] - 1, jobs["client"], jobs["task"]].all()


@pytest.mark.parametrize("method", ["random", "mmfl-lvr*", "mmfl-fairvr"])
def test_a_run_with_fractional_users_resumes_to_the_same_bits(method, tmp_path):
    chosen = recruited_for(method, bids_file(tmp_path, NOBODY), 5)
    resumes_to_the_same_bits(chosen, tmp_path, 3)
