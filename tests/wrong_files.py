"""Wrong experiment files: keys, values, types, ranges, TOML."""

from refusals import Words
from wrong_inputs import Wrong, edited

CLOTHES, DIGITS = 'task 1 "clothes"', 'task 2 "digits"'
RATE, PARTITION = "learning_rate = 0.05", '{kind = "label-share", share = 0.3, sizes = [10, 20]}'
FINITE = "finite number"


def section(text: str, place: Words, remedy: Words) -> Wrong:
    return edited("[output]", f"{text}\n[output]", place, remedy)


def key(text: str, remedy: Words, place: Words = ()) -> Wrong:
    """Of the first task."""
    places = (place,) if isinstance(place, str) else place
    return edited(RATE, f"{RATE}\n{text}", (CLOTHES, *(places or (text.partition(" ")[0],))), remedy)


def rate(value: str, remedy: Words, *place: str) -> Wrong:
    return edited(RATE, f"learning_rate = {value}", (CLOTHES, *(place or ("learning_rate",))), remedy)


def partition(value: str, remedy: Words, *place: str) -> Wrong:
    return edited(PARTITION, value, (CLOTHES, *(place or ("partition",))), remedy)


def population(text: str, remedy: Words) -> Wrong:
    return edited("rate = 0.3", text, ("population", text.partition(" ")[0]), remedy)


def method(value: str, remedy: Words, *place: str) -> Wrong:
    return edited('method = "random"', f"method = {value}", ("method", *place), remedy)


def auction(text: str, remedy: Words, *place: str) -> Wrong:
    given = {"mechanism": '"gmm-fair"', "budget": "3", "bids": '{kind = "uniform"}'}
    name, _, value = text.partition(" = ")
    table = "\n".join(f"{name} = {value}" for name, value in {**given, name: value}.items())
    return section(f"[recruitment]\n{table}", ("recruitment", *(place or (name,))), remedy)


FILES: dict[str, Wrong] = {
    # TOML
    "broken TOML": edited("rounds = 4", "rounds = = 4", "line 2", "valid TOML"),
    "no equals sign": edited("rounds = 4", "rounds: 4", "line 2", ("valid TOML", "'='")),
    "two values": edited("rounds = 4", "rounds = 4 4", "line 2", "valid TOML"),
    "an open string": edited('name = "small"', 'name = "small', "line 1", "valid TOML"),
    "a key twice": edited("rate = 0.3", "rate = 0.3\nrate = 0.2", "line 8", ("valid TOML", "overwrite")),
    "a section twice": section("[output]", "line 29", ("valid TOML", "twice")),
    "a task that is a table": edited(
        '[[task]]\nname = "clothes"', '[task]\nname = "clothes"', "line 17", "valid TOML"
    ),
    # keys
    "unknown key": edited("rounds = 4", "rouds = 4", '"rouds"', '"rounds"'),
    "unknown key far from all": edited("rounds = 4", "rounds = 4\nzzz = 1", '"zzz"', ("known", "population")),
    "unknown key in a table": edited(
        "clients = 12", "cleints = 12", ("[population]", '"cleints"'), '"clients"'
    ),
    "unknown key in a task": edited(
        RATE, "learning_rat = 0.05", (CLOTHES, '"learning_rat"'), '"learning_rate"'
    ),
    "unknown key of a learning rate": rate(
        '{initial = 0.1, shedule = "step"}', '"learning_rate.schedule"', '"learning_rate.shedule"'
    ),
    "unknown key in a partition": edited(
        "share = 0.3", "shar = 0.3", (CLOTHES, '"partition.shar"'), '"partition.share"'
    ),
    "key of another partition": edited(
        'kind = "label-share"', 'kind = "iid"', (CLOTHES, '"partition.share"'), ("disjoint", "kind", "sizes")
    ),
    "unknown key in an event": section("[[event]]\nround = 1\nleafe = 1", ("event 1", '"leafe"'), '"leave"'),
    "missing key": edited("rounds = 4", "", '"rounds"', ("missing", "add it")),
    "missing section": edited(
        "[population]\nclients = 12\nrate = 0.3", "", '"population"', ("missing", "add it")
    ),
    "missing key in a task": edited(RATE, "", (CLOTHES, '"learning_rate"'), ("missing", "add it")),
    "missing key in a partition": edited(
        ", alpha = 0.5, sizes = [10, 20]", "", (DIGITS, '"partition.alpha"'), ("missing", "add it")
    ),
    "shorthand that lacks a key": edited(
        '{kind = "dirichlet", alpha = 0.5, sizes = [10, 20]}',
        '"dirichlet"',
        (DIGITS, '"partition.alpha"'),
        ("missing", "add it"),
    ),
    "partition without a kind": edited(
        'kind = "dirichlet", ', "", (DIGITS, '"partition.kind"'), ("missing", "add")
    ),
    "clusters that are not told apart": partition(
        '{kind = "clusters", clusters = 2}', ("missing", "add it"), '"partition.consistent"'
    ),
    "privacy without a clip": key("privacy = {noise = 1.0}", ("missing", "add it"), '"privacy.clip"'),
    "recruitment without bids": section(
        '[recruitment]\nmechanism = "gmm-fair"\nbudget = 3',
        ("[recruitment]", '"bids"'),
        ("missing", "add it"),
    ),
    # types
    "word for a number": edited("rounds = 4", 'rounds = "four"', ("rounds", "'four'"), "integer"),
    "fraction for a whole number": edited("rounds = 4", "rounds = 4.5", "rounds", ("integer", "fraction")),
    "truth for a number": edited("rounds = 4", "rounds = true", ("rounds", "true"), "number"),
    "truth for a rate": population("rate = true", "number"),
    "number for a truth": edited("samples = 100", "clients = 3", ("[evaluation] clients", "3"), "boolean"),
    "number for a list": edited(
        "samples = 100", "thresholds = 0.5", ("[evaluation] thresholds", "0.5"), "list"
    ),
    "number for a section": edited(
        "[population]\nclients = 12\nrate = 0.3", "population = 3", ("population", "3"), "table"
    ),
    "number for a method": method("3", ("name", "table", '{name = "random"}', "fedmux.Method")),
    "list for a method": method('["random"]', ("name", "table", '{name = "random"}')),
    "number for a folder": edited("checkpoint_every = 1", "folder = 3", ("[output] folder", "3"), "string"),
    "number for a name": edited('name = "small"', "name = 3", ("name", "3"), "string"),
    "number for data": edited('data = "digits"', "data = 3", (DIGITS, "data"), ("(x, y)", "function", "int")),
    "list of words for data": edited(
        'data = "digits"', 'data = ["a", "b"]', (DIGITS, "data", "inputs"), "array of numbers"
    ),
    "number for a model": edited(
        'model = "mlp"\nlearning_rate = 0.05',
        "model = 3\nlearning_rate = 0.05",
        (CLOTHES, "model"),
        ("torch.nn.Module", "input_shape", "outputs", "int"),
    ),
    "number for a loss": key("loss = 3", ("(outputs, targets)", "(batch,)", "int")),
    "number for options": key("model_options = 3", "table"),
    "list for options": key("loss_options = [1]", "table"),
    "number for weights": key("initial_weights = 3", "string"),
    "truth for privacy": key("privacy = true", "table"),
    "number for a partition": partition("3", "table"),
    "table for a fraction": section("[stop]\naccuracy = {a = 1}", "[stop] accuracy", "number"),
    "table for a number": edited(
        '"digits"\ndata', '"digits"\nbatch_size = {a = 1}\ndata', (DIGITS, "batch_size"), "integer"
    ),
    "table for a list of events": section("[event]\nround = 1", "event", "list"),
    "words for seeds": section('[compare]\nseeds = ["a"]', "[compare] seeds 1", "integer"),
    "one method to compare": section('[compare]\nmethods = "random"', "[compare] methods", "list"),
    "number for a baseline": section("[compare]\nbaseline = 3", "[compare] baseline", "string"),
    # names
    "a name that is no file name": edited(
        'name = "digits"', 'name = "../digits"', ('task 2 "../digits"', "name"), ("letter", "digit", '"."')
    ),
    "a hidden name": edited(
        'name = "digits"',
        'name = ".digits"',
        (DIGITS.replace("digits", ".digits"), "name"),
        "letter or digit",
    ),
    "a run's name with a blank": edited(
        'name = "small"', 'name = "a b"', "name", ("letter", "digit", "'a b'")
    ),
    "no name": edited('name = "small"', 'name = ""', "name", ("letter", "digit")),
    "two tasks of one name": edited(
        'name = "digits"', 'name = "clothes"', ("tasks", '"clothes"'), "own name"
    ),
    "arrays of a process that is gone": edited(
        'data = "digits"',
        'data = "<arrays>"',
        (DIGITS, "data"),
        ("arrays", "fedmux.resume(folder, experiment="),
    ),
    "a function of a process that is gone": edited(
        'data = "digits"',
        'data = "<points>"',
        (DIGITS, "data", "<points>"),
        "fedmux.resume(folder, experiment=",
    ),
    "a loss of a process that is gone": key('loss = "<lambda>"', "fedmux.resume(folder, experiment="),
    "a method of a process that is gone": method('"<Mine>"', "fedmux.resume(folder, experiment=", "<Mine>"),
    # ranges at the top
    "no rounds": edited("rounds = 4", "rounds = 0", ("rounds", "0"), "greater than or equal to 1"),
    "rounds without end": edited("rounds = 4", "rounds = inf", ("rounds", "inf"), FINITE),
    "negative seed": edited(
        "rounds = 4", "rounds = 4\nseed = -1", ("seed", "-1"), "greater than or equal to 0"
    ),
    "a seed beyond all": edited("rounds = 4", f"rounds = 4\nseed = {10**20}", "seed", "less than"),
    # [population]
    "negative rate": population("rate = -0.3", ("greater than 0", "-0.3")),
    "rate above one": population("rate = 3", "less than or equal to 1"),
    "rate that is no number": population("rate = nan", FINITE),
    "endless rate": population("rate = inf", FINITE),
    "endless jobs": population("jobs = inf", FINITE),
    "no jobs": population("jobs = 0", "greater than 0"),
    "jobs and rate": population("rate = 0.3\njobs = 3", ("jobs", "remove one")),
    "no clients": edited(
        "clients = 12", "clients = 0", ("[population] clients", "0"), "greater than or equal to 1"
    ),
    "a word for clients": edited(
        "clients = 12", 'clients = "many"', ("[population] clients", "'many'"), "integer"
    ),
    "nobody at the start": population("start = 0", "greater than or equal to 1"),
    "more at the start than there are": population("start = 13", ("at most", "12")),
    "no processors": population("processors = 0", ("whole number", "list", "{all, half, one}")),
    "a word for processors": population('processors = "all"', ("whole number", "list", "{all, half, one}")),
    "processors for too few": population("processors = [1, 2]", ("2 numbers", "12 clients")),
    "negative processors": population("processors = [1, -1]", "at least 0"),
    "shares that do not add up": population("processors = {all = 0.5, one = 0.4}", ("add up to 1", "0.9")),
    "shares that are no numbers": population("processors = {all = nan, one = 1}", "numbers of at least 0"),
    "negative shares": population("processors = {all = -1, one = 2}", "numbers of at least 0"),
    "a share that there is not": population(
        "availability = {all = 0.5, some = 0.5}", ('"some"', "all", "all_but_one")
    ),
    "nobody has anything": population("availability = 0", ("above 0", "up to 1")),
    "more than certain": population("availability = 2", ("above 0", "up to 1")),
    "an availability that is no number": population("availability = nan", ("above 0", "up to 1")),
    # learning rates
    "negative learning rate": rate("-0.05", ("greater than 0", "-0.05")),
    "no learning rate": rate("0", "greater than 0"),
    "endless learning rate": rate("inf", FINITE),
    "learning rate below all": rate("-inf", FINITE),
    "learning rate that is no number": rate("nan", FINITE),
    "learning rate that overflows": rate("1e400", FINITE),
    "truth for a learning rate": rate("true", ("number", "table", "initial", "schedule")),
    "list for a learning rate": rate("[0.1]", ("number", "table", "initial", "schedule")),
    "word for a learning rate": rate('"fast"', ("number", "table", "initial", "schedule"), "learning_rate"),
    "empty learning rate": rate("{}", ("missing", "add it"), '"learning_rate.initial"'),
    "unknown schedule": rate(
        '{initial = 0.05, schedule = "cosine"}',
        ("'constant'", "'inverse'", "'step'"),
        "learning_rate.schedule",
    ),
    "endless schedule": rate(
        '{initial = 0.1, schedule = "inverse", offset = inf}', FINITE, "learning_rate.offset"
    ),
    "schedule that grows": rate(
        '{initial = 0.1, schedule = "step", factor = 2}', "less than or equal to 1", "learning_rate.factor"
    ),
    "schedule of no rounds": rate(
        '{initial = 0.1, schedule = "step", every = 0}', "greater than or equal to 1", "learning_rate.every"
    ),
    # other numbers of a task
    "momentum of one": key("momentum = 1.0", "less than 1"),
    "momentum that is no number": key("momentum = nan", FINITE),
    "negative decay": key("weight_decay = -1", "greater than or equal to 0"),
    "endless decay": key("weight_decay = inf", FINITE),
    "clip to nothing": key("clip = 0", "greater than 0"),
    "endless clip": key("clip = inf", FINITE),
    "no cost": key("cost = 0", "greater than 0"),
    "endless cost": key("cost = inf", FINITE),
    "half a unit": key("units = 0.5", "greater than or equal to 1"),
    "units that are no number": key("units = nan", FINITE),
    "empty batches": key("batch_size = 0", "greater than or equal to 1"),
    "a word for batches": key('batch_size = "big"', "integer"),
    "no epochs": edited(
        'local_epochs = 1\npartition = {kind = "label',
        'local_epochs = 0\npartition = {kind = "label',
        (CLOTHES, "local_epochs"),
        "greater than or equal to 1",
    ),
    "endless privacy": key("privacy = {clip = inf}", FINITE, "privacy.clip"),
    "noise that is no number": key("privacy = {clip = 1.0, noise = nan}", FINITE, "privacy.noise"),
    "noise that hides nothing": key("privacy = {clip = 1.0, noise = 1e-9}", "at least", "privacy.noise"),
    "a guarantee of nothing": key("privacy = {clip = 1.0, delta = 1}", "less than 1", "privacy.delta"),
    # partitions
    "unknown kind of partition": edited(
        '"dirichlet"', '"dirichle"', (DIGITS, "partition.kind", "'dirichle'"), ("'iid'", "'dirichlet'")
    ),
    "unknown shorthand": partition('"even"', ("'iid'", "'label-share'"), "partition.kind", "'even'"),
    "range upside down": partition('{kind = "iid", sizes = [20, 10]}', "[10, 20]", "partition.sizes"),
    "half a range": partition('{kind = "iid", sizes = [5]}', ("missing", "add it"), "partition.sizes"),
    "no points": partition('{kind = "iid", sizes = 0}', "greater than 0", "partition.sizes"),
    "a word for sizes": partition('{kind = "iid", sizes = "even"}', "'equal'", "partition.sizes"),
    "truth for sizes": partition('{kind = "iid", sizes = true}', ("count", "[low, high]"), "partition.sizes"),
    "two levels for everybody": partition(
        '{kind = "iid", sizes = {low = [1, 2], high = [3, 4], high_share = 1.5}}',
        "less than or equal to 1",
        "partition.sizes.high_share",
    ),
    "concentration of nothing": partition(
        '{kind = "dirichlet", alpha = 0}', "greater than 0", "partition.alpha"
    ),
    "endless concentration": partition('{kind = "dirichlet", alpha = inf}', FINITE, "partition.alpha"),
    "more labels than all": partition(
        '{kind = "label-share", share = 2}', "less than or equal to 1", "partition.share"
    ),
    "no classes": partition(
        '{kind = "classes", classes = 0}', "greater than or equal to 1", "partition.classes"
    ),
    "sizes of natural groups": partition(
        '{kind = "natural", sizes = 3}', ("unknown", "cap"), '"partition.sizes"'
    ),
    "empty groups": partition('{kind = "natural", cap = 0}', "greater than 0", "partition.cap"),
    "perhaps disjoint": partition('{kind = "iid", disjoint = "perhaps"}', "boolean", "partition.disjoint"),
    # [evaluation], [stop], [execution], [output]
    "never evaluated": edited(
        "samples = 100", "every = 0", "[evaluation] every", "greater than or equal to 1"
    ),
    "one sample": edited(
        "samples = 100", "samples = 1", "[evaluation] samples", "greater than or equal to 2"
    ),
    "all for validation": edited(
        "samples = 100", "validation_share = 1", "[evaluation] validation_share", "less than 1"
    ),
    "a threshold that is no number": edited(
        "samples = 100", "thresholds = [nan]", "[evaluation] thresholds 1", FINITE
    ),
    "a report on training": edited(
        "samples = 100", 'report = "train"', ("[evaluation] report", "'train'"), ("'test'", "'validation'")
    ),
    "perfect accuracy": section("[stop]\naccuracy = 2", "[stop] accuracy", "less than or equal to 1"),
    "unknown divergence": section(
        '[stop]\ndivergence = "ignore"', "[stop] divergence", ("'pause'", "'retry'", "'stop'")
    ),
    "no retries": section("[stop]\nretries = 0", "[stop] retries", "greater than or equal to 1"),
    "unknown device": section(
        '[execution]\ndevice = "gpu"', "[execution] device", ("cpu", "cuda:1", "'gpu'")
    ),
    "unknown precision": section(
        '[execution]\nprecision = "fp16"', "[execution] precision", ("'fp32'", "'tf32'", "'bf16'")
    ),
    "unknown way to train": section(
        '[execution]\nlocal = "fast"', "[execution] local", ("'auto'", "'loop'", "'stacked'")
    ),
    "no checkpoints": edited(
        "checkpoint_every = 1", "checkpoint_every = 0", "[output] checkpoint_every", ("rounds", '"10 min"')
    ),
    "an unknown unit of time": edited(
        "checkpoint_every = 1",
        'checkpoint_every = "10 minutes"',
        "[output] checkpoint_every",
        ('"10 min"', "'10 minutes'"),
    ),
    "no time at all": edited(
        "checkpoint_every = 1",
        'checkpoint_every = "0 s"',
        "[output] checkpoint_every",
        ("rounds", '"10 min"'),
    ),
    # who comes and goes
    "an event before the first round": section("[[event]]\nround = 0", "event 1: round", "equal to 1"),
    "a client beyond all": section("[[event]]\nround = 1\njoin = [40]", "[[event]] of round 1", "0..11"),
    "a task that there is not": section(
        '[[event]]\nround = 1\njoin_tasks = ["clothing"]',
        ("[[event]] of round 1", '"clothing"'),
        "clothes, digits",
    ),
    "more than all join": section("[[event]]\nround = 1\njoin = 1.5", "event 1: join", "at most 1"),
    "less than nobody leaves": section(
        "[[event]]\nround = 1\nleave = -1", "event 1: leave", ("number", "list")
    ),
    "a share that is no number": section("[[event]]\nround = 1\nleave = nan", "event 1: leave", "above 0"),
    "arrivals without a pause": section(
        "[arrivals]\nmean_wait = 0", "[arrivals] mean_wait", "greater than 0"
    ),
    "arrivals never": section("[arrivals]\nmean_wait = inf", "[arrivals] mean_wait", FINITE),
    "arrivals of nobody": section(
        "[arrivals]\nmean_wait = 2\nclients = 0", "[arrivals] clients", "greater than or equal to 1"
    ),
    "unknown absence": section(
        '[absence]\nkind = "holiday"', "[absence] kind", ("'random'", "'cycle'", "'file'")
    ),
    "a cycle of one round": section(
        '[absence]\nkind = "cycle"\nperiod = 1', "[absence] period", "equal to 2"
    ),
    "absence without its file": section('[absence]\nkind = "file"', "absence", ("file", 'kind = "file"')),
    "more than present": section(
        '[absence]\nkind = "random"\npresent = 2', "absence: present", "between 0 and 1"
    ),
    "a presence that is no number": section(
        '[absence]\nkind = "random"\npresent = nan', "[absence] present", FINITE
    ),
    "everybody drops out": section("[dropout]\nrate = 1", "dropout: rate", "below 1"),
    "dropouts that are no number": section("[dropout]\nrate = nan", "[dropout] rate", (FINITE, "list")),
    "dropouts upside down": section("[dropout]\nrate = [0.4, 0.1]", "dropout: rate", "lower end first"),
    "a word for dropouts": section('[dropout]\nrate = "often"', "[dropout] rate", ("number", "list")),
    "unknown correction": section(
        '[dropout]\nrate = 0.1\ncorrection = "guessed"', "[dropout] correction", ("'known'", "'estimated'")
    ),
    "no over-selection": section(
        "[stragglers]\nover_selection = 1", "[stragglers] over_selection", "greater than 1"
    ),
    "endless spread": section(
        "[stragglers]\nover_selection = 2\nspread = inf", "[stragglers] spread", FINITE
    ),
    # [recruitment]
    "unknown mechanism": auction('mechanism = "auction"', ("one of", "max-min-fair", "gmm-fair")),
    "negative budget": auction("budget = -1", "greater than or equal to 0"),
    "a budget that is no number": auction("budget = nan", FINITE),
    "unknown bids": auction('bids = {kind = "even"}', ("'uniform'", "'exponential'"), "kind"),
    "bids upside down": auction('bids = {kind = "uniform", low = 2, high = 1}', "low must be below high"),
    "endless bids": auction('bids = {kind = "exponential", rate = inf}', FINITE, "rate"),
    "bids for three tasks": auction(
        'bids = [{kind = "linear"}, {kind = "linear"}, {kind = "linear"}]', ("3", "2 tasks")
    ),
    "no bids": auction("bids = []", "at least 1 item"),
    # methods
    "unknown method": method('"randm"', ('"random"', "full"), '"randm"'),
    "no method": method('""', ("known", "random"), '""'),
    "a method without a name": method('{participation = "clients"}', ("name", '{name = "random"}')),
    "a method's name that is a number": method("{name = 3}", ("name", '{name = "random"}')),
    "unknown key in method options": method(
        '{name = "random", participatoin = "clients"}', '"participation"', '"participatoin"'
    ),
    "option of another method": method(
        '{name = "full", participation = "clients"}', '"participation"', "unknown"
    ),
    "unknown participation": method(
        '{name = "random", participation = "people"}', ("'processors'", "'clients'"), "participation"
    ),
    "endless option": method('{name = "q-ffl", q = inf}', FINITE, "q"),
    "negative option": method('{name = "q-ffl", q = -1}', "greater than or equal to 0", "q"),
    "option that is no number": method(
        '{name = "fedfairmmfl", alpha = nan}', "greater than or equal", "alpha"
    ),
    "a rank of none": method('{name = "fedvarp", rank = 0}', "greater than or equal to 1", "rank"),
    "a low rank on disk": method(
        '{name = "fedvarp", rank = 4, storage = "disk"}', ("remove", 'storage = "disk"'), "rank"
    ),
    "a rank where nothing is kept": method(
        '{name = "mmfl-forecast", stale = false, rank = 4}', ("remove rank", "stale = true"), "stale = false"
    ),
    "a low rank of a method that averages it": method(
        '{name = "mifa", rank = 4}', ("remove rank", 'precision = "bfloat16"'), '"mifa"'
    ),
    "one task only": method('"fedavg"', '"random"', '"fedavg"', "one task", "2"),
    "method that cannot be imported": method(
        '"nosuch:Method"', ("nosuch", "install it", "run where nosuch is"), '"nosuch:Method"'
    ),
    "method that is none": method('"own:Plain"', "fedmux.Method", '"own:Plain"'),
    "method without a class": method('"own:"', "package.module:name", '"own:"'),
    "method whose module quits": method(
        '"quitter:Method"', ("SystemExit", "fix the module"), '"quitter:Method"'
    ),
    "method that lacks an option": method('"own:Strong"', ("missing", "add it"), '"strength"'),
    "method with an endless option": method('{name = "own:Strong", strength = inf}', FINITE, "strength"),
    "method with a misspelt option": method(
        '{name = "own:Strong", strenght = 1}', '"strength"', '"strenght"'
    ),
    "unknown method to compare": section(
        '[compare]\nmethods = ["randm"]', ("[compare] methods", '"randm"'), ('"random"', "full")
    ),
}
