"""What a preset compares: for each variant a design, with the user's choices applied."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from fedmux.comparison.design import Design
from fedmux.errors import FedmuxError
from fedmux.experiment.overrides import put
from fedmux.reproduce.preset import Preset, Variant
from fedmux.reproduce.quick import smaller
from fedmux.runs.compared import label_of


@dataclass(frozen=True)
class Choice:
    """What the user wants of a preset."""

    seeds: int | None = None  # how many; None: the preset's, or 1 with --quick
    quick: bool = False
    methods: Sequence[str] = ()  # labels; none: all
    overrides: Sequence[str] = ()  # key=value
    device: str | None = None
    add_to: Path | None = None  # existing results


def designs(preset: Preset, choice: Choice) -> tuple[list[tuple[Variant | None, Design]], list[str]]:
    """What is compared, for each variant; and what is smaller than in the paper."""
    for override in choice.overrides:
        _check(override, preset)
    table, changes = smaller(preset.table()) if choice.quick else (preset.table(), [])
    seeds = list(range(choice.seeds or (1 if choice.quick else preset.seeds)))
    device = [f"execution.device={choice.device}"] if choice.device else []
    variants: list[Variant | None] = [*preset.source.variants] or [None]
    planned = []
    for variant in variants:
        varied = _varied(table, variant, [*choice.overrides, *device])
        design = Design.make(varied, f"preset {preset.name}", seeds=seeds)
        planned.append((variant, _chosen(design, choice.methods)))
    return planned, changes


def as_experiment(preset: Preset, choice: Choice) -> str:
    """As the text of an experiment file: the first variant, the others as comments."""
    (_, design), *_ = designs(preset, choice)[0]
    comments = []
    for variant in preset.source.variants[1:]:
        changed = variant.set or [f"the first {variant.tasks} tasks"]
        comments.append(f"# variant {variant.name}: {', '.join(changed)}\n")
    compare = {"methods": design.methods, "seeds": design.seeds, "baseline": design.baseline}
    return "".join(comments) + tomli_w.dumps({**design.table, "compare": compare})


def _check(override: str, preset: Preset) -> None:
    """Refuses --set for what a preset compares: its rows would no longer match their names."""
    keys = _keys(override)
    if keys[0] in ("compare", "method", "seed"):
        raise FedmuxError(f'--set "{override}": choose with --methods and --seeds')
    for variant in preset.source.variants:
        whole = [["task"], ["tasks"]] if variant.tasks and len(keys) == 1 else []
        for own in [*whole, *map(_keys, variant.set)]:
            if all(a == b for a, b in zip(keys, own)):
                raise FedmuxError(
                    f'--set "{override}": the variants of {preset.name} differ in {".".join(own)}; '
                    "`--print` shows it as an experiment file to change"
                )


def _keys(override: str) -> list[str]:
    return override.partition("=")[0].strip().split(".")


def _varied(table: dict[str, Any], variant: Variant | None, overrides: Sequence[str]) -> dict[str, Any]:
    """A variant's keys, then the user's."""
    table = copy.deepcopy(table)
    if variant is not None:
        table["task"] = table["task"][: variant.tasks]
        for override in variant.set:
            put(table, override)
    for override in overrides:
        put(table, override)
    return table


def _chosen(design: Design, labels: Sequence[str]) -> Design:
    """Only the methods with these labels, and the baseline, which the others are compared with."""
    known = {label_of(method): method for method in design.methods}
    if unknown := [label for label in labels if label not in known]:
        raise FedmuxError(f'{design.source}: has no method "{unknown[0]}"; its methods: {", ".join(known)}')
    chosen = [method for label, method in known.items() if not labels or label in (*labels, design.baseline)]
    return replace(design, methods=chosen)
