"""Wrong words on the command line, of every verb, and wrong variables of the environment."""

from refusals import Words
from wrong_inputs import COMPARE, RUN, Wrong

HELP = "--help"
RESUMED = ("run folder", "fedmux list")
NAMES = "separate them by commas"
TABLE = ("reproduce", "table1-3tasks")


def typed(*words: str, place: Words, remedy: Words) -> Wrong:
    return Wrong(words, place, remedy)


def run(*words: str, place: Words, remedy: Words) -> Wrong:
    return Wrong((*RUN, *words), place, remedy)


def compare(*words: str, place: Words, remedy: Words) -> Wrong:
    return Wrong((*COMPARE, *words), place, remedy)


def bids(name: str, place: Words, remedy: Words, *more: str) -> Wrong:
    return Wrong(("auction", name, "--budget", "3", *more), place, remedy)


def of_a_task(override: str, place: Words, remedy: Words) -> Wrong:
    return Wrong((*RUN, "-o", "run", "--set", override), place, remedy, 'task "clothes": ')


COMMANDS: dict[str, Wrong] = {
    # the verbs themselves
    "unknown command": typed("trian", place="trian", remedy=HELP),
    "unknown option of all": typed("--verion", place="--verion", remedy="--version"),
    "unknown option": run("--sed", "1", place="--sed", remedy=HELP),
    "missing argument": typed("run", place="EXPERIMENT", remedy=("Missing", HELP)),
    "too many arguments": run("more", place="more", remedy=("extra", HELP)),
    "methods of a name": typed("methods", "random", place="random", remedy=HELP),
    # files
    "missing file": typed("run", "nosuch.toml", place="nosuch.toml", remedy=("no such file", "fedmux init")),
    "folder for a file": typed("run", ".", place=".: ", remedy=("read", "directory")),
    "run folder for a file": typed("run", "done", place="done", remedy=("read", "directory")),
    "nothing for a file": typed("run", "", place=".: ", remedy="directory"),
    "a summary for a file": typed("run", "done/summary.json", place="done/summary.json", remedy="TOML"),
    "a model for a file": typed(
        "run", "done/models/digits.safetensors", place="digits.safetensors", remedy=("read", "utf-8")
    ),
    "a module for a file": typed("run", "own.py", place=("own.py", "line"), remedy="TOML"),
    "bids for a file": typed("run", "bids.csv", place=("bids.csv", "line 1"), remedy="TOML"),
    "not text": typed("run", "bytes.toml", place="bytes.toml", remedy=("read", "utf-8")),
    "a zero byte": typed("run", "nul.toml", place=("nul.toml", "line 1"), remedy="TOML"),
    "a byte order mark": typed("run", "mark.toml", place=("mark.toml", "line 1"), remedy="TOML"),
    "a number of 5000 digits": typed("run", "digits.toml", place="digits.toml", remedy=("TOML", "digits")),
    "a list without end": typed("run", "deep.toml", place="deep.toml", remedy=("TOML", "too deep")),
    # --set
    "empty override": run("--set", "rounds", place='"rounds"', remedy=("key=value", "population.clients=50")),
    "override of nothing": run("--set", "", place='""', remedy=("key=value", "population.clients=50")),
    "override without a key": run("--set", "=3", place='"=3"', remedy="key=value"),
    "override of no key of the tasks": run("--set", "task.=3", place='"task.=3"', remedy="key=value"),
    "override with an empty part": run("--set", "a..b=3", place='"a..b=3"', remedy="key=value"),
    "override without a word": run("--set", place="--set", remedy=("argument", HELP)),
    "override by nothing": run("--set", "rounds=", place="rounds", remedy="integer"),
    "override of a value's inside": run("--set", "rounds.x=1", place='"rounds.x=1"', remedy="set rounds"),
    "override of a section": run("--set", "population=3", place="population", remedy="table"),
    "override by 5000 digits": run("--set", f"rounds={'9' * 5000}", place="rounds", remedy="integer"),
    "override by brackets": run("--set", f"rounds={'[' * 20_000}", place="rounds", remedy="integer"),
    "override of an unknown key": run(
        "--set", "rouds=1", place=("experiment.toml", '"rouds"'), remedy='"rounds"'
    ),
    "override of an unknown task": run(
        "--set",
        "task.cloths.learning_rate=1",
        place=('"task.cloths.learning_rate=1"', '"cloths"'),
        remedy="clothes, digits",
    ),
    "override that spoils the tasks": run(
        "--set", "task=5", "--set", "task.learning_rate=1", place=("task", "5"), remedy="list"
    ),
    "nobody can train": of_a_task(
        f"population.processors=[{','.join(['0'] * 12)}]",
        "no client",
        ("population.availability", "processors", "budget"),
    ),
    "too few held-out points": of_a_task(
        "evaluation.validation_share=0.001", ("100", "evaluation.validation_share = 0.001"), "more points"
    ),
    # --device, --workers, memory
    "unknown device": run("--device", "gpu", place=("device", "cuda:1"), remedy=("got", "'gpu'")),
    "device without a number": run("--device", "cuda:x", place="device", remedy=("cuda:1", "'cuda:x'")),
    "no device": run("--device", "", place="device", remedy=("auto", "cuda:1")),
    "no workers": run("--workers", "0", place="[execution] workers", remedy=("at least 1", '"auto"')),
    "fewer workers than none": run(
        "--workers", "-1", place="[execution] workers", remedy=("at least 1", "-1")
    ),
    "many workers": run("--workers", "many", place="[execution] workers", remedy='"auto"'),
    "workers of nothing": run("--workers", "", place="[execution] workers", remedy='"auto"'),
    "workers of 5000 digits": run("--workers", "9" * 5000, place="[execution] workers", remedy='"auto"'),
    "more workers than cores": run(
        "--workers", "50000", place="execution.workers = 50000", remedy="take at most"
    ),
    "more workers than cores, in the file": run(
        "--set", "execution.workers=50000", place="execution.workers = 50000", remedy="take at most"
    ),
    "more clients than memory": run(
        "--set", "population.clients=1000000000000", place="this run", remedy=("GB", "fewer clients")
    ),
    # --log and -o
    "unknown tracker": run("--log", "tensorbord", place='--log "tensorbord"', remedy="tensorboard"),
    "no tracker": run("--log", "", place='--log ""', remedy=NAMES),
    "only a comma of trackers": run("--log", ",", place='--log ","', remedy=NAMES),
    "half a list of trackers": run("--log", "csv,", place='--log "csv,"', remedy=NAMES),
    "run below a file": run("-o", "own.py/run", place="own.py/run", remedy="Not a directory"),
    "run in place of a file": run("-o", "bytes.toml", place="bytes.toml", remedy=("written", "exists")),
    "run in a folder that is in use": run("-o", "used", place="used", remedy=("not empty", "-o")),
    "run in its own folder": typed(
        "run",
        "done/experiment.toml",
        "-o",
        "done",
        place="done",
        remedy=("not empty", "choose another with -o"),
    ),
    "run in another's folder": run("-o", "cut", place="cut", remedy=("not empty", "fedmux resume", "-o")),
    # resume
    "resume without a folder": typed("resume", place="RUN", remedy=("Missing", HELP)),
    "nothing to resume": typed("resume", "nosuch", place="nosuch", remedy=RESUMED),
    "a file to resume": typed("resume", "experiment.toml", place="experiment.toml", remedy=RESUMED),
    "an experiment's folder to resume": typed("resume", ".", place=".: ", remedy=RESUMED),
    "an empty folder to resume": typed("resume", "empty", place="empty", remedy=RESUMED),
    "a thesis to resume": typed("resume", "used", place="used", remedy=RESUMED),
    "a damaged comparison to resume": typed("resume", "compared", place="comparison.toml", remedy="damaged"),
    "a comparison on a device": typed(
        "resume", "compared", "--device", "cpu", place="--device", remedy="comparison keeps its own"
    ),
    "a comparison with workers": typed(
        "resume", "compared", "--workers", "2", place="--workers", remedy="comparison keeps its own"
    ),
    "a comparison with a tracker": typed(
        "resume", "compared", "--log", "csv", place="--log", remedy="its folder runs"
    ),
    "resume with more workers than cores": typed(
        "resume", "cut", "--workers", "50000", place="execution.workers = 50000", remedy="take at most"
    ),
    "resume on an unknown device": typed(
        "resume", "cut", "--device", "gpu", place="device", remedy=("cuda:1", "'gpu'")
    ),
    "resume with a comma of trackers": typed("resume", "cut", "--log", ",", place='--log ","', remedy=NAMES),
    # compare
    "compare nothing": typed("compare", place="EXPERIMENT", remedy=("Missing", HELP)),
    "compare a missing file": typed("compare", "nosuch.toml", place="nosuch.toml", remedy="fedmux init"),
    "compare a run": typed("compare", "done", place="done", remedy="directory"),
    "no methods": compare("--methods", "", place='--methods ""', remedy=NAMES),
    "only a comma of methods": compare("--methods", ",", place='--methods ","', remedy=NAMES),
    "only a blank of methods": compare("--methods", " ", place='--methods " "', remedy=NAMES),
    "half a list of methods": compare("--methods", "full,", place='--methods "full,"', remedy=NAMES),
    "an unknown method": compare(
        "--methods", "full,randm", place=("method", '"randm"'), remedy=('"random"', "full")
    ),
    "a method twice": compare("--methods", "full,full", place="full-seed-0", remedy=("once", '"label"')),
    "no seeds": compare("--seeds", "", place='--seeds ""', remedy="0-4"),
    "only a comma of seeds": compare("--seeds", ",", place='--seeds ","', remedy="0-4"),
    "a hole in the seeds": compare("--seeds", "1,,2", place='--seeds "1,,2"', remedy="0-4"),
    "seeds that are none": compare("--seeds", "x", place='--seeds "x"', remedy="0-4"),
    "a negative seed": compare("--seeds", "-1", place='--seeds "-1"', remedy="0-4"),
    "half a seed": compare("--seeds", "0.5", place='--seeds "0.5"', remedy="0-4"),
    "seeds upside down": compare("--seeds", "4-0", place='--seeds "4-0"', remedy="0-4"),
    "a seed twice": compare("--seeds", "1,1", place="random-seed-1", remedy=("once", '"label"')),
    "a seed beyond all": compare("--seeds", "9" * 19, place="seed", remedy="less than"),
    "seeds beyond memory": compare("--seeds", "0-99999999999", place="--seeds", remedy="at most 100,000"),
    "thousands of seeds": compare(
        "--seeds", "0-2000", place=("2,001 runs", "4 rounds"), remedy=("hours", "--yes")
    ),
    "an axis without values": compare("--vary", "rounds", place='--vary "rounds"', remedy="key=a,b"),
    "an axis of nothing": compare("--vary", "=1,2", place='--vary "=1,2"', remedy="key=a,b"),
    "an empty axis": compare("--vary", "rounds=", place='--vary "rounds="', remedy="key=a,b"),
    "an axis of a comma": compare("--vary", "rounds=,", place='--vary "rounds=,"', remedy="key=a,b"),
    "a hole in an axis": compare("--vary", "rounds=1,,2", place='--vary "rounds=1,,2"', remedy="key=a,b"),
    "half an axis": compare("--vary", "rounds=1,2,", place='--vary "rounds=1,2,"', remedy="key=a,b"),
    "a value twice": compare("--vary", "rounds=1,1", place="rounds=1-seed-0", remedy=("once", '"label"')),
    "an axis with a bad value": compare("--vary", "rounds=2,x", place=("rounds", "'x'"), remedy="integer"),
    "an axis out of range": compare(
        "--vary", "population.rate=2", place="[population] rate", remedy="equal to 1"
    ),
    "an axis of an unknown key": compare("--vary", "rouds=2", place='"rouds"', remedy='"rounds"'),
    "axes without end": compare(
        *("--vary", f"rounds={','.join(map(str, range(1, 60)))}"),
        *("--vary", f"task.batch_size={','.join(map(str, range(1, 60)))}"),
        place="3,481 runs",
        remedy=("hours", "--yes"),
    ),
    "no baseline": compare("--baseline", "", place='--baseline ""', remedy="full"),
    "a baseline that is not compared": compare(
        *("--methods", "random,full", "--baseline", "fedavg"),
        place='baseline "fedavg"',
        remedy="random, full",
    ),
    "no number of runs": compare("--parallel", "all", place=("--parallel", "all"), remedy=("integer", HELP)),
    "fewer runs than none": compare("--parallel", "-1", place="--parallel", remedy=("-1", "x>=0")),
    "more runs than cores": compare("--parallel", "50000", place="--parallel 50000", remedy="take at most"),
    "compared with more workers than cores": compare(
        "--set", "execution.workers=50000", place="execution.workers = 50000", remedy="take at most"
    ),
    "compare below a file": compare("-o", "own.py/c", place="own.py/c", remedy="Not a directory"),
    "compare in a folder that is in use": compare("-o", "used", place="used", remedy=("not empty", "-o")),
    "compare in a run": compare("-o", "done", place="done", remedy=("not empty", "-o")),
    "compare in a damaged comparison": compare("-o", "compared", place="comparison.toml", remedy="damaged"),
    # show, list, report, ui
    "show without a folder": typed("show", place="RUN", remedy=("Missing", HELP)),
    "nothing to show": typed("show", "nosuch", place="nosuch", remedy=RESUMED),
    "a file to show": typed("show", "experiment.toml", place="experiment.toml", remedy=RESUMED),
    "an empty folder to show": typed("show", "empty", place="empty", remedy=RESUMED),
    "nothing to list": typed("list", place="runs", remedy=("no such folder", "fedmux run")),
    "a file to list": typed("list", "experiment.toml", place="experiment.toml", remedy="fedmux run"),
    "report without runs": typed("report", place="RUN", remedy=("Missing", HELP)),
    "nothing to report": typed("report", "nosuch", place="nosuch", remedy="fedmux list"),
    "an empty folder to report": typed("report", "empty", place="empty", remedy="no run"),
    "report in place of a folder": typed(
        "report", "done", "-o", "used", place="used", remedy="used/report.html"
    ),
    "report in a folder that is not there": typed(
        "report", "done", "-o", "nosuch/x.html", place=("nosuch/x.html", "no folder"), remedy="make it first"
    ),
    "pictures in place of a file": typed(
        "report", "done", "--png", "own.py", place="--png own.py", remedy="a folder"
    ),
    "nothing to watch": typed("ui", "nosuch", place="nosuch", remedy="fedmux run"),
    "a file to watch": typed("ui", "experiment.toml", place="experiment.toml", remedy="fedmux run"),
    "a port beyond all": typed("ui", "done", "--port", "99999", place="--port", remedy="65535"),
    "a port in words": typed("ui", "done", "--port", "x", place="--port", remedy="integer"),
    # init, explain
    "a file that is there": typed(
        "init", "experiment.toml", place="experiment.toml", remedy=("exists", "another")
    ),
    "a folder that is there": typed("init", "used", place="used", remedy=("exists", "another")),
    "a folder that is not there": typed(
        "init", "nosuch/experiment.toml", place="nosuch/experiment.toml", remedy="No such"
    ),
    "a file below a file": typed("init", "own.py/x.toml", place="own.py/x.toml", remedy="Not a directory"),
    "explain nothing": typed("explain", place="EXPERIMENT", remedy=("Missing", HELP)),
    "explain a missing file": typed("explain", "nosuch.toml", place="nosuch.toml", remedy="fedmux init"),
    "explain in text": typed(
        "explain", "experiment.toml", "-o", "x.txt", place="x.txt", remedy=("PNG", "x.png")
    ),
    "explain in a folder that is not there": typed(
        "explain", "experiment.toml", "-o", "nosuch/x.png", place="nosuch/x.png", remedy="make it first"
    ),
    "explain the round after the last": typed(
        *("explain", "experiment.toml", "--rounds", "99"), place="99", remedy="so take 0 to"
    ),
    "explain a round before the first": typed(
        *("explain", "experiment.toml", "--rounds", "-1"), place="--rounds", remedy="x>=0"
    ),
    "explain an unknown key": typed(
        "explain", "experiment.toml", "--set", "rouds=1", place='"rouds"', remedy='"rounds"'
    ),
    "explain data that quits": typed(
        *("explain", "experiment.toml", "--set", "task.clothes.data=own:quits"),
        place=('task "clothes"', "own:quits"),
        remedy="SystemExit",
    ),
    # auction
    "auction without bids": typed("auction", place="BIDS", remedy=("Missing", HELP)),
    "auction without a budget": typed("auction", "bids.csv", place="--budget", remedy=("Missing", HELP)),
    "a budget in words": bids("bids.csv", "--budget", "float", "--budget", "x"),
    "a negative budget": bids("bids.csv", "budget", "at least 0", "--budget", "-1"),
    "a budget that is no number": bids("bids.csv", "budget", "finite", "--budget", "nan"),
    "an endless budget": bids("bids.csv", "budget", "finite", "--budget", "inf"),
    "an endless budget to compare": bids("bids.csv", "budget", "finite", "--budget", "inf", "--compare"),
    "unknown mechanism": bids("bids.csv", '"maxmin"', '"max-min-fair"', "--mechanism", "maxmin"),
    "a negative seed of an auction": bids("bids.csv", "--seed", ("-1", "x>=0"), "--seed", "-1"),
    "mechanisms in text": bids("bids.csv", "x.txt", ("PNG", "x.png"), "--compare", "-o", "x.txt"),
    "mechanisms in a folder that is not there": bids(
        "bids.csv", "nosuch/x.png", "make it first", "--compare", "-o", "nosuch/x.png"
    ),
    "no such bids": bids("nosuch.csv", "nosuch.csv", "no such file"),
    "a folder of bids": bids("used", "used", "directory"),
    "bids that are no text": bids("binary.csv", "binary.csv", "utf-8"),
    "empty bids": bids("empty.csv", "empty.csv", ("header", "row")),
    "bids of nobody": bids("header.csv", "header.csv", ("header", "row")),
    "bids for nothing": bids("numbers.csv", ("numbers.csv", "first line"), "name the tasks"),
    "bids for one task twice": bids("columns.csv", ("columns.csv", "header"), "each task once"),
    "a bid too few": bids("ragged.csv", ("ragged.csv", "line 2"), ("2 columns", "header 3")),
    "a bid in words": bids("word.csv", ("word.csv", "line 2, b", '"cheap"'), "leave it empty"),
    "a negative bid": bids("negative.csv", ("negative.csv", "line 2, b"), "at least 0"),
    "a bid that is no number": bids("nan.csv", ("nan.csv", "line 2, b"), "finite"),
    "a user twice": bids("twice.csv", ("twice.csv", "line 4", '"x"', "line 2"), "keep one"),
    "a user twice, in an experiment": run(
        *("--set", 'recruitment={mechanism="gmm-fair",budget=3,bids="twice.csv"}'),
        place=("twice.csv", "line 4", '"x"'),
        remedy="keep one",
    ),
    "bids of other users": run(
        *("--set", 'recruitment={mechanism="gmm-fair",budget=3,bids="bids.csv"}'),
        place="bids.csv",
        remedy=("12 clients", "clothes, digits", "2 rows"),
    ),
    "no file of absences": run(
        "--set", 'absence={kind="file",file="nosuch.csv"}', place="nosuch.csv", remedy="No such file"
    ),
    # data
    "unknown verb of data": typed("data", "fetch", place="fetch", remedy=HELP),
    "get nothing": typed("data", "get", place="NAME", remedy=("Missing", HELP)),
    "unknown data to get": typed(
        "data", "get", "nosuch", place='"nosuch"', remedy=("fashion-mnist", "cifar10")
    ),
    "get what is here": typed("data", "get", "digits", place='"digits"', remedy="use it as it is"),
    "add nothing": typed("data", "add", "mine", place="PATH", remedy=("Missing", HELP)),
    "no data to add": typed("data", "add", "mine", "nosuch.npz", place="nosuch.npz", remedy="exist"),
    "add an npz that is none": typed(
        "data", "add", "mine", "text.npz", place="text.npz", remedy="numpy.savez"
    ),
    "add a module": typed("data", "add", "mine", "own.py", place="own.py", remedy=".npz"),
    "add a thesis": typed("data", "add", "mine", "used", place="used", remedy=".npz"),
    "add what is here": typed("data", "add", "digits", "sound.npz", place='"digits"', remedy="another name"),
    "add a path": typed("data", "add", "../x", "sound.npz", place='"../x"', remedy=("letters", "digits")),
    "add without a name": typed("data", "add", "", "sound.npz", place='""', remedy=("letters", "digits")),
    # flower
    "unknown verb of flower": typed("flower", "down", place="down", remedy=HELP),
    "an app in place of a folder": typed("flower", "init", "used", place="used", remedy="another folder"),
    "a federation of nobody": typed(
        "flower", "up", "experiment.toml", "--clients", "0", place="--clients", remedy="x>=1"
    ),
    "a federation of a missing file": typed(
        "flower", "up", "nosuch.toml", place="nosuch.toml", remedy="fedmux init"
    ),
    "a federation beyond the population": typed(
        "flower",
        "up",
        "experiment.toml",
        "--clients",
        "13",
        place="--clients 13",
        remedy="population.clients = 12",
    ),
    "an app that is none": typed(
        "flower", "up", "experiment.toml", "--app", "used", place="used", remedy="fedmux flower init"
    ),
    "no time for an answer": typed(
        "flower", "up", "experiment.toml", "--deadline", "0", place="--deadline", remedy="x>=1"
    ),
    # reproduce
    "reproduce nothing": typed("reproduce", place="NAME", remedy=("Missing", HELP)),
    "unknown preset": typed("reproduce", "table1-3task", place='"table1-3task"', remedy='"table1-3tasks"'),
    "no seeds of a preset": typed(*TABLE, "--seeds", "0", place="--seeds", remedy="1<=x"),
    "seeds of a preset beyond memory": typed(*TABLE, "--seeds", "1000000", place="--seeds", remedy="100000"),
    "thousands of seeds of a preset": typed(
        *TABLE, "--seeds", "5000", place=("table1-3tasks", "55,000 runs"), remedy=("hours", "--yes")
    ),
    "only a comma of a preset's methods": typed(
        *TABLE, "--methods", ",", place='--methods ","', remedy=NAMES
    ),
    "no methods of a preset": typed(*TABLE, "--methods", "", place='--methods ""', remedy=NAMES),
    "unknown method of a preset": typed(
        *TABLE, "--methods", "fedsgd", place='"fedsgd"', remedy=("random", "full")
    ),
    "all with methods": typed("reproduce", "all", "--methods", "random", place="all: ", remedy="--seeds"),
    "all without a method": typed("reproduce", "all", "--methods", "", place="all: ", remedy="--seeds"),
    "a preset's seed": typed(*TABLE, "--set", "seed=3", place='"seed=3"', remedy="--seeds"),
    "unknown key of a preset": typed(
        *TABLE, "--quick", "--set", "rouds=3", place='"rouds"', remedy='"rounds"'
    ),
    "nothing of a preset to show": typed(
        *TABLE, "--show", place="reproduced/table1-3tasks", remedy="without --show"
    ),
    "no results to add to": typed(*TABLE, "--add-to", "nosuch", place="nosuch", remedy="papers/results/NAME"),
    "more runs of a preset than cores": typed(
        *TABLE, "--quick", "--parallel", "50000", place="--parallel 50000", remedy="take at most"
    ),
    "a preset on an unknown device": typed(
        *TABLE, "--quick", "--device", "gpu", place="device", remedy="cuda:1"
    ),
    # the environment
    "a folder for data that is below a file": Wrong(
        ("data", "add", "mine", "sound.npz"),
        "own.py/data",
        "FEDMUX_DATA",
        environment={"FEDMUX_DATA": "own.py/data"},
    ),
    "a team without a master": Wrong(
        RUN, "RANK", "unset these variables", environment={"RANK": "0", "WORLD_SIZE": "2"}
    ),
    "a comparison by a team": Wrong(
        COMPARE, "comparison", "its runs can", environment={"RANK": "0", "WORLD_SIZE": "2"}
    ),
}
