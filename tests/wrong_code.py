"""Wrong data, models, losses, weights: what shows once a task is put together, before anything is written."""

from dataclasses import replace

from wrong_inputs import Wrong, in_task

WHOLE = ("all of it is in", "fedmux-error")  # the rest of what the user's code said
NUMPY = "numpy.savez"


def data(
    name: str, place: tuple[str, ...], remedy: str | tuple[str, ...], more: str = "partition=iid"
) -> Wrong:
    """A function of own.py."""
    return in_task(f"data=own:{name} {more}", (f'data "own:{name}"', *place), remedy)


CODE: dict[str, Wrong] = {
    # where data comes from
    "unknown data": in_task("data=mnst", 'data "mnst"', ('"mnist"', "digits", ".npz")),
    "no data": in_task("data=", 'data ""', ("digits", ".npz", "module:function")),
    "a file that is no data": in_task("data=own.py", 'data "own.py"', (".npz", "module:function")),
    "data that is not here": in_task("data=cifar10", 'data "cifar10"', "fedmux data get cifar10"),
    "no such npz": in_task("data=nosuch.npz", "nosuch.npz", "exist"),
    "an npz that is none": in_task("data=text.npz", "text.npz", NUMPY),
    "an npz that is a folder": in_task("data=folder.npz", "folder.npz", ("directory", NUMPY)),
    "an npz without its parts": in_task("data=lacks.npz", ("lacks.npz", '"test_x"'), "train_x, train_y"),
    "an npz of objects": in_task("data=objects.npz", "objects.npz", (NUMPY, "plain arrays")),
    "NaN in an npz": in_task(
        "data=nan.npz", ('data "nan.npz"', "train input 7", "NaN"), ("remove", "impute")
    ),
    "data that cannot be imported": in_task(
        "data=nosuch:data", 'data "nosuch:data"', ("nosuch", "install it", "run where nosuch is")
    ),
    "a module that needs another": in_task(
        "data=needy:data", ('data "needy:data"', "needy"), ("nosuch", "installed")
    ),
    "a module with a syntax error": in_task(
        "data=broken:data", ('data "broken:data"', "broken.py", "line 1"), ("SyntaxError", "fix the module")
    ),
    "a module that quits": in_task(
        "data=quitter:data", ('data "quitter:data"', "quitter"), ("SystemExit", "fix the module", *WHOLE)
    ),
    "data without a function": in_task("data=own:", 'data "own:"', "package.module:name"),
    "data without a module": in_task("data=:own", 'data ":own"', "package.module:name"),
    "a data function that is not there": in_task("data=own:fail", 'data "own:fail"', '"fails"'),
    # functions that give data
    "data that is a number": data("number", (), ("function without arguments", "(x, y)")),
    "data that is another class": data("Plain", ("Plain",), ("Dataset", "(x, y)")),
    "a data function that fails": data(
        "fails", (), ("RuntimeError", "the disk of the laboratory is not mounted", *WHOLE)
    ),
    "a data function that fails without a word": data("fails_without_a_word", (), ("ValueError", *WHOLE)),
    "a data function that quits": data("quits", (), ("SystemExit", *WHOLE)),
    "a data function that quits with a word": data("quits_with_a_word", (), ("SystemExit", "no licence")),
    "a data function that wants arguments": data(
        "asks", ("'path'",), ("function without arguments", "(x, y)")
    ),
    "a table for data": data("table", ("dict",), ("Dataset", "(x, y)")),
    "three arrays": data("three", (), ("(x, y)", "(x, y, test_x, test_y)")),
    # arrays
    "ragged inputs": data("ragged", ("inputs",), "same shape"),
    "inputs that are objects": data("objects", ("inputs",), "array of numbers"),
    "inputs that are one number": data("a_number", ("inputs",), "array of numbers"),
    "inputs that could be anything": data("integers", ("int64",), ("uint8", "tokens", "floats")),
    "more inputs than targets": data("unequal", ("40 inputs",), "30 targets"),
    "no points": data("nothing", ("empty",), "at least one point"),
    "one point": data("one_point", (), "at least two points"),
    "test points of another shape": data("unlike_parts", ("test inputs", "(2,)", "(3,)"), "alike"),
    "NaN in a row": data("nan", ("input 33", "NaN"), ("remove", "impute")),
    "NaN in a target": data("nan_target", ("target 23", "NaN"), ("remove", "correct")),
    "a huge input": data("large", ("input 29", "1e+30"), ("scale", "standard deviation 1")),
    # labels
    "labels that are words": data("words", ("targets",), "np.unique(y, return_inverse=True)"),
    "labels that are floats": in_task(
        "data=own:floats partition=iid", ("data", "floats", "cross-entropy"), "y.astype(int)"
    ),
    "labels that are fractions": in_task(
        "data=own:fractions partition=iid", ("data", "floats", "cross-entropy"), '"squared-error"'
    ),
    "labels that are one-hot": in_task("data=own:one_hot partition=iid", ("data", "one-hot"), "y.argmax(1)"),
    "labels that are one-hot integers": data("one_hot_integers", ("(4,)", "one-hot"), "y.argmax(1)"),
    "labels in a column": data("column", ("(1,)",), "y.ravel()"),
    "a huge label": data("huge_label", ("label 3000000000", "row 17"), ("3,000,000,001 classes", "0..4")),
    "a negative label": data("negative_label", ("label -1", "row 31"), "0..3"),
    "labels out of range": data("labels_beyond_the_classes", ("label 10", "row 3"), "0..9"),
    "tokens beyond the alphabet": in_task(
        "data=own:tokens partition=iid model=char-lstm", ("model", "(6,)", "500..500"), "index out of range"
    ),
    # models
    "unknown model": in_task("model=resnet", 'model "resnet"', ('"resnet18"', "cnn", "module:Class")),
    "no model": in_task("model=", 'model ""', ("cnn", "module:Class")),
    "a model with a dot": in_task("model=own.Five", 'model "own.Five"', "module:Class"),
    "model that cannot be imported": in_task(
        "model=nosuch:Net", 'model "nosuch:Net"', ("nosuch", "install it", "run where nosuch is")
    ),
    "model that is misspelt": in_task("model=own:Fives", 'model "own:Fives"', '"Five"'),
    "model without such an option": in_task(
        "model_options={hiden=[3]}", ('model "mlp"', '"hiden"'), '"hidden"'
    ),
    "model with a wrong option": in_task("model_options={hidden=[-1]}", ('model "mlp"', "[-1]"), "positive"),
    "model beyond all memory": in_task(
        "model_options={hidden=[1000000000000]}", ('model "mlp"', "hidden"), "memory"
    ),
    "model for other data": in_task(
        "model=char-lstm", ('model "char-lstm"', "(1, 28, 28)"), ("tokens", "another model", "other data")
    ),
    "own model of another shape": in_task("model=own:Narrow", ("model", "(1, 28, 28)"), ("fit", "7x10")),
    "own model with too few outputs": in_task(
        "model=own:Five", ("model", "5 outputs", "9"), "parameter named outputs"
    ),
    "own model with two results": in_task("model=own:Pair", ("model", "tuple"), "tensor"),
    "own model that quits": in_task("model=own:Quits", "model", ("SystemExit: 3", *WHOLE)),
    "own model that fails": in_task("model=own:Fails", "model", ("wrong", *WHOLE)),
    "own model that fails without a word": in_task(
        "model=own:FailsWithoutAWord", "model", ("ValueError", *WHOLE)
    ),
    "own model that cannot be built": in_task(
        "model=own:Unbuildable", 'model "own:Unbuildable"', ("KeyError: 'width'", *WHOLE)
    ),
    "own model that quits early": in_task("model=own:quits_early", 'model "own:quits_early"', "not today"),
    "a class that is no model": in_task(
        "model=own:Plain", 'model "own:Plain"', ("torch.nn.Module", "input_shape", "outputs")
    ),
    "a function that makes no model": in_task(
        "model=own:no_module", ('model "own:no_module"', "NoneType"), "torch.nn.Module"
    ),
    "a model that is made already": in_task("model=own:ready", 'model "own:ready"', ("class", "function")),
    # losses and metrics
    "unknown loss": in_task("loss=cross-entrpy", 'loss "cross-entrpy"', '"cross-entropy"'),
    "loss that cannot be imported": in_task(
        "loss=nosuch:loss", 'loss "nosuch:loss"', ("nosuch", "install it", "run where nosuch is")
    ),
    "loss that is averaged": in_task(
        "loss=own:averaged", 'loss "own:averaged"', ("one value per point", 'reduction="none"')
    ),
    "loss of one argument": in_task(
        "loss=own:of_one", 'loss "own:of_one"', ("(outputs, targets)", "(batch,)")
    ),
    "loss that is a float": in_task(
        "loss=own:a_float", ('loss "own:a_float"', "float"), "one value per point"
    ),
    "loss that is a class": in_task(
        "loss=own:Loss", 'loss "own:Loss"', ("(outputs, targets)", "not a class")
    ),
    "loss that is a number": in_task("loss=own:number", 'loss "own:number"', "(outputs, targets)"),
    "loss that fails": in_task("loss=own:loss_fails", "loss", ("this loss is not finished", *WHOLE)),
    "loss that quits": in_task("loss=own:loss_quits", "loss", ("SystemExit", *WHOLE)),
    "loss for numbers on labels": in_task(
        "loss=squared-error", ("squared-error", "(3, 10)", "(3,)"), ("as many outputs", "floats")
    ),
    "loss with unknown options": in_task(
        "loss_options={smoothing=0.1}",
        ('loss "cross-entropy"', "0.1"),
        "unexpected keyword argument 'smoothing'",
    ),
    "loss that is too smooth": in_task(
        "loss_options={label_smoothing=2}", ("label_smoothing", "2"), "[0, 1)"
    ),
    "loss that is not smooth": in_task(
        "loss_options={label_smoothing=nan}", ("label_smoothing", "nan"), "[0, 1)"
    ),
    "unknown metric": replace(
        in_task("metric=acuracy", 'task 1 "clothes": metric "acuracy"', ('"accuracy"', "module:function")),
        start="experiment.toml: ",
    ),
    # weights to start from
    "no such initial weights": in_task(
        "initial_weights=nosuch.safetensors", ("initial_weights", "nosuch.safetensors"), "no such file"
    ),
    "initial weights of another shape": in_task(
        "initial_weights=other.safetensors",
        ("initial_weights", "other.safetensors"),
        ("fit the model", '"layers.0.weight"'),
    ),
    "initial weights that are none": in_task(
        "initial_weights=experiment.toml", ("initial_weights", "experiment.toml"), ("fit the model", "header")
    ),
    "initial weights that are a folder": in_task(
        "initial_weights=used", ("initial_weights", "used"), ".safetensors"
    ),
    # how points are divided
    "partition larger than the pool": in_task(
        "partition.sizes=5000",
        ("partition", "60000", "6000"),
        ("disjoint = false", "lower sizes", "more data"),
    ),
    "natural groups that there are not": in_task(
        "partition=natural", ("partition", '"natural"'), ("groups", "another kind", "other data")
    ),
    "more classes than labels": in_task(
        'partition={kind="classes",classes=11}', ("partition", "11 classes", "10 labels"), "lower classes"
    ),
}
