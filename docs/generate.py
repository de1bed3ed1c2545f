"""Writes experiment-file.md from the schema and the registries; with --check it only says if that is due."""

import inspect
import sys
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from fedmux import dynamics
from fedmux import experiment as schema
from fedmux.data.partition import Partition
from fedmux.data.sizes import TwoLevels
from fedmux.experiment.metric import MetricChoice
from fedmux.methods import Method, registry
from fedmux.privacy import Privacy
from fedmux.recruitment.bids import BidLaw
from fedmux.tasks.registry import MODULES

TARGET = Path(__file__).with_name("experiment-file.md")

NOUNS = {bool: "true or false", int: "whole number", float: "number", str: "text"}
LIMITS = {"ge": "at least", "gt": "above", "le": "up to", "lt": "below"}
SHORTHAND = {
    "data": "text",
    "model": "text",
    "loss": "text",
    "learning_rate": "number or table",
    "methods": "list of names or tables",
}
SHORTHAND |= {"bids": "text, table or list of tables", "checkpoint_every": "whole number or time"}
SHORTHAND |= dict.fromkeys(
    ("method", "metric", "partition"), "text or table"
)  # more than the annotation says

INTRODUCTION = """<!-- Written by docs/generate.py from the schema: change that, then run `make docs`. -->
# The experiment file

A TOML file describes one experiment. Unknown keys, wrong types and impossible values are rejected before any
work starts, with a message that names the key and the fix. `fedmux init` writes this file to start from:
```toml
{starter}```
`fedmux run FILE --set KEY=VALUE` changes a key for one run: `population.clients=50`, `task.batch_size=16` for
every task, `task.NAME.batch_size=16` for the task of that name. [In Python](#in-python) the same keys are
arguments of `fedmux.Experiment`. [concepts.md](concepts.md) explains the nouns, [data.md](data.md) the data
sets.
[P1], [P2] and [P3] are the [papers](../README.md#papers)."""
MODELS = """Models and their `model_options`. A `module:Class` of your own is called with the options and,
where it has parameters of these names, with `input_shape` (without the batch) and `outputs`."""
METRIC = """How a task is scored: a name, or a table. [metrics.md](metrics.md) explains units and progress."""
SIZES = """One of `"equal"` (the whole pool, evenly), a number of points for every client, a range
`[low, high]` from which each client draws, or a table with two levels:"""
IN_PYTHON = """## In Python

`fedmux.Experiment(...)` takes the same keys; `task` may be called `tasks`. Where the file has `module:name`,
Python also takes the thing itself:

| key | what it is | called with | returns |
|---|---|---|---|
| `model` | a `torch.nn.Module` class, a function, a `functools.partial`, a lambda | `model_options`, and \
`input_shape` (without the batch) and `outputs` where it has parameters of these names | a module |
| `data` | a function | nothing | `(x, y)`, `(x, y, test_x, test_y)` or a `fedmux.Dataset` |
| `loss` | a function, an object such as `nn.CrossEntropyLoss(reduction="none")` | `outputs`, `targets`, and \
`loss_options` | one value per point, shape `(batch,)` |
| `method` | the class of a `fedmux.Method`, or an object of it | | see [add-a-method.md](add-a-method.md) |

```python
import fedmux
from torch import nn


class Net(nn.Module):
    def __init__(self, input_shape, outputs, width=32):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, outputs))

    def forward(self, x):
        return self.layers(x)


task = {"name": "digits", "data": "digits", "model": Net, "learning_rate": 0.1}
task["model_options"] = {"width": 16}
experiment = fedmux.Experiment(rounds=2, method="random", population={"clients": 10}, tasks=[task])
fedmux.run(experiment)
```

A wrong value is a `fedmux.FedmuxError` with the line that the command line prints. A run folder keeps
`module:name` where that is how to import the thing. What was typed into a script or a notebook, lambdas and
arrays have no such name: the folder keeps `<Net>`, `<lambda>` or `<arrays>`, and to resume such a run the
experiment is passed again, `fedmux.resume(folder, experiment=experiment)`. With `workers` above 1 the other
processes are sent the experiment, so a lambda is refused: define it at the top level of a module."""
COMPARE = """What `fedmux compare` runs unless the command line says otherwise. A table in `methods` has a
name, options and optionally a `label`. If `methods` names the file's own `method`, its options apply too."""

EXAMPLES = {
    "population": "clients = 120\njobs = 12\nprocessors = {all = 0.25, half = 0.5, one = 0.25}\n"
    "availability = {all = 0.9, all_but_one = 0.1}",
    "task": 'name = "clothes"\ndata = "fashion-mnist-sample"\nmodel = "mlp"\nlearning_rate = 0.05\n'
    'model_options = {hidden = [64, 32]}\nclip = 5.0\npartition = {kind = "dirichlet", alpha = 0.3}',
    "learning_rate": '{initial = 0.1, schedule = "inverse", offset = 20}',
    "metric": '{name = "mean-absolute-error", unit = "°C", start = "constant"}',
    "sizes": '{kind = "iid", sizes = {low = [9, 15], high = [90, 150], high_share = 0.1}}',
    "evaluation": "every = 5\nsamples = 2000\nthresholds = [0.5, 0.8]",
    "execution": 'device = "cpu"\nworkers = "auto"',
    "stop": "accuracy = 0.85",
    "output": 'folder = "runs/first"\ncheckpoint_every = 10',
    "event": "round = 30\njoin = 6\nleave = [0, 1]",
    "arrivals": "mean_wait = 10.0\nclients = 3",
    "departures": "mean_wait = 20.0",
    "absence": 'kind = "cycle"\npresent = [0.3, 0.9]\nperiod = 24',
    "dropout": 'rate = [0.0, 0.4]\ncorrection = "known"',
    "stragglers": 'over_selection = 1.3\ncorrection = "estimated"\nspread = 0.5',
    "privacy": "{clip = 1.0, noise = 2.0}",
    "recruitment": 'mechanism = "max-min-fair"\nbudget = 30\nbids = {kind = "uniform"}',
    "compare": 'methods = ["full", {name = "random", participation = "clients", label = "by client"}]\n'
    'seeds = [0, 1, 2]\nbaseline = "full"',
}
BIDS = {"mean": 0.2, "std": 0.2, "rate": 2.0}
REQUIRED = {"share": 0.3, "classes": 2, "alpha": 0.5, "clusters": 4, "consistent": True}  # of partitions


def words(kind: Any) -> str:
    """A type annotation in words."""
    origin, parts = get_origin(kind), [part for part in get_args(kind) if part is not NoneType]
    if origin is Annotated:
        return words(parts[0]) + limits(parts[1:])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(words(part) for part in parts))
    if origin is Literal:
        return " or ".join(f"`{toml(value)}`" for value in parts)
    if origin in (list, tuple):
        return f"list of {words(parts[0]).partition(' (')[0]}s"
    return NOUNS.get(origin or kind, "table")


def limits(metadata: Iterable[Any]) -> str:
    found = [(word, getattr(item, name, None)) for item in metadata for name, word in LIMITS.items()]
    said = [f"{word} {limit:,g}" for word, limit in found if limit is not None and limit < 2**63]
    return f" ({', '.join(said)})" if said else ""


def toml(value: Any) -> str:
    if isinstance(value, bool | str):
        return f'"{value}"' if isinstance(value, str) else str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {toml(item)}' for key, item in value.items())}}}"
    return toml(value.model_dump()["kind"]) if isinstance(value, BaseModel) else str(value)


def section(heading: str, model: type[BaseModel], example: str, *text: str) -> list[str]:
    """Heading, text, a table of keys (without those that are sections), an example."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, field in sorted(model.model_fields.items(), key=lambda item: item[0] != "kind"):
        if field.description or model is not schema.Experiment:
            kind = SHORTHAND.get(name) or words(field.annotation) + limits(field.metadata)
            value = field.get_default(call_default_factory=True)
            default = "-" if value is None else "required" if field.is_required() else f"`{toml(value)}`"
            meaning = (field.description or "").replace("|", r"\|")
            rows.append(f"| `{name}` | {kind} | {default} | {meaning} |")
    keys = ["\n".join(rows)] if model.model_fields else []
    return [heading, *(text or [model.__doc__ or ""]), *keys, f"```toml\n{example}\n```"]


def models() -> str:
    rows = ["| model | what it is | options |", "|---|---|---|"]
    for name, (module, _) in MODULES.items():
        own = [p for p in inspect.signature(module).parameters.values() if p.default is not p.empty]
        options = ", ".join(f"`{p.name}`" for p in own if p.name != "classes")
        rows.append(f"| `{name}` | {(module.__doc__ or '').splitlines()[0]} | {options} |")
    return "\n".join(rows)


def method(name: str, kind: type[Method]) -> list[str]:
    claim = [f"`{key} = {toml(value)}`" for key, value in (kind.unbiased_when or {}).items()]
    unbiased = "no" if kind.unbiased_when is None else "with " + " and ".join(claim) if claim else "always"
    text = (kind.__doc__ or "").splitlines()[0], f"Source: {kind.paper}. Unbiased: {unbiased}."
    given = [(key, f.default) for key, f in kind.model_fields.items() if f.default is not None][-2:]
    example = f"method = {toml({'name': name, **dict(given)} if given else name)}"
    return section("### " + " or ".join(f"`{n}`" for n in (name, *kind.aliases)), kind, example, *text)


def page() -> str:
    parts = [INTRODUCTION.format(starter=files("fedmux").joinpath("starter.toml").read_text("utf-8"))]

    def add(key: str, model: Any, *text: str, heading: str = "## `[{}]`", start: str = "[{}]\n") -> None:
        parts.extend(section(heading.format(key), model, start.format(key) + EXAMPLES[key], *text))

    parts += section("## Top level", schema.Experiment, 'name = "first"\nrounds = 30\nmethod = "random"')
    add("population", schema.PopulationSettings)
    add("task", schema.TaskSettings, heading="## `[[{}]]`", start="[[{}]]\n")
    parts += [MODELS, models()]
    add("metric", MetricChoice, METRIC, heading="### `{}` of a task", start="{} = ")
    add("learning_rate", schema.LearningRate, heading="### `{}` of a task", start="{} = ")
    add("privacy", Privacy, heading="### `{}` of a task", start="{} = ")
    parts.append("## `partition` of a task")
    for kind in get_args(get_args(Partition)[0]):
        name = kind.model_fields["kind"].default
        required = {key: REQUIRED[key] for key, field in kind.model_fields.items() if field.is_required()}
        parts += section(f"### `{name}`", kind, f"partition = {toml({'kind': name, **required})}")
    add("sizes", TwoLevels, SIZES, heading="### `{}` of a partition", start="partition = ")
    for key in ("evaluation", "execution", "stop", "output"):
        add(key, schema.Experiment.model_fields[key].annotation)
    add("event", dynamics.Event, heading="## `[[{}]]`", start="[[{}]]\n")
    add("arrivals", dynamics.Process)
    add("departures", dynamics.Process, "The same keys as `[arrivals]`, for clients that leave.")
    add("absence", dynamics.Absence)
    add("dropout", dynamics.Dropout)
    add("stragglers", dynamics.Stragglers)
    add("recruitment", schema.RecruitmentSettings)
    for law in get_args(get_args(BidLaw)[0]):
        name = law.model_fields["kind"].default
        required = {key: BIDS[key] for key, field in law.model_fields.items() if field.is_required()}
        example = f'mechanism = "budget-fair"\nbudget = 30\nbids = {toml({"kind": name, **required})}'
        parts += section(f"### `{name}` bids", law, f"[recruitment]\n{example}")
    add("compare", schema.CompareSettings, COMPARE)
    parts += [IN_PYTHON, "## Methods", *(part for item in registry().items() for part in method(*item))]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    if "--check" not in sys.argv:
        TARGET.write_text(page(), "utf-8")
    elif not TARGET.exists() or TARGET.read_text("utf-8") != page():
        sys.exit(f"{TARGET.name} is out of date: run `make docs`")
