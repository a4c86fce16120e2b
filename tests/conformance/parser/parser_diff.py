#!/usr/bin/env python3
"""Compares muster's reading of the command line with that of torchrun's own parser.

The reference is the parser of torch 2.15. --release names the release to compare with: the torch of
this Python, or a release whose Python part is in a folder (scripts/torch_release puts it there),
and is then loaded over the torch of this Python. An older release has fewer options: where its
reading differs, muster must read the line as that parser would with the options of 2.15 added.

The test generates command lines and PET_ variables from a seed, lets both parsers parse them and
compares the outcome (parsed, help, usage error), the error's text and every value. Intended
differences are listed in ON_PURPOSE, each with a rule for muster's exact result; any other
difference is an error.

Usage: parser_diff.py PARSE_LINES_PROGRAM [--release VERSION --releases FOLDER] [--count N]
[--seed N]. Needs a Python with torch; without torch, or without the release, the test says so and
exits with 77, which ctest takes as skipped.
"""
import argparse
import collections
import importlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from sample import sample

SKIPPED = 77
WHERE = 5  # The number of unexplained lines to show.

# The intended differences and their reasons. The names are those of the classes counted below.
ON_PURPOSE = {
    "ambiguous-after-script": "an option of the script is never an error of the launcher: words "
    "after the script are not looked at",
    "empty-variable": "an empty PET_ variable counts as not set",
    "switch-word": "PET_STANDALONE=true, yes, on and their contraries are understood",
    "switch-variable-overruled": "a PET_ variable that is no boolean is ignored when the switch "
    "is given on the line, as torchrun does for all other options, and does not hinder --help",
    "switch-variable-bad": "a PET_ variable that is no boolean is a usage error (2), "
    "not a traceback (1)",
    "dashes-as-value": "--role=-- gives the text --; argparse drops it and leaves an empty list",
    "integer-too-large": "integers have 64 bits; torchrun accepts any and fails later or wraps",
}
LATER_NAMES = ("--log-line-prefix-template", "--log_line_prefix_template", "--print-completion",
               "--print_completion")
LATER_OPTION = "later-option"
LATER_REASON = "an option that this release does not have yet, or an abbreviation that fits one"

TOKEN = "DASHES"
TRUE_WORDS = {"true", "yes", "on", "t", "y"}
FALSE_WORDS = {"false", "no", "off", "f", "n"}


class Stopped(Exception):
    """Raised in place of the parser's error(); has its text."""


class Printed(Exception):
    """Raised in place of printing a completion script."""


class PrintCompletion(argparse.Action):
    def __call__(self, *_, **__):
        raise Printed


def load_run(folder):
    """torch.distributed.run; with a folder, that of the release whose Python part is there. The
    release's packages are put over those of the installed torch, whose compiled part stays."""
    import torch
    import torch.distributed

    if folder is not None:
        for package in ("torch.distributed", "torch.numa"):
            path = importlib.import_module(package).__path__
            path.insert(0, str(folder.joinpath(*package.split("."))))
        for name in list(sys.modules):
            if name.startswith("torch.distributed.") and name.split(".")[2] in (
                    "argparse_util", "elastic", "launcher", "run") or name.startswith("torch.numa."):
                del sys.modules[name]
    from torch.distributed import run

    assert folder is None or pathlib.Path(run.__file__).is_relative_to(folder), run.__file__
    return run


def with_later_options(parser, env_action):
    """Adds the options of 2.15 that the parser of an older release lacks, in 2.15's order."""
    names = parser._option_string_actions
    if "--log-line-prefix-template" not in names:
        before = list(names.items())
        parser.add_argument("--log-line-prefix-template", "--log_line_prefix_template",
                            action=env_action, type=str, default="")
        new = [item for item in names.items() if item not in before]
        at = 1 + max(i for i, (_, action) in enumerate(before) if action.dest == "tee")
        names.clear()
        names.update(before[:at] + new + before[at:])
    if "--print-completion" not in names:
        parser.add_argument("--print-completion", "--print_completion", action=PrintCompletion,
                            choices=["bash", "zsh", "tcsh"])
    return parser


class Peer:
    """torchrun's parser and its result for a line."""

    def __init__(self, run, adds_later_options):
        # Without shtab, and with it, this action would end the test.
        if hasattr(run, "_PrintCompletionAction"):
            run._PrintCompletionAction.__call__ = PrintCompletion.__call__
        self.run = run
        self.adds_later_options = adds_later_options
        parser = self.get_args_parser()
        self.switches = sorted(
            a.dest for a in parser._actions if a.nargs == 0 and a.dest not in ("help",))
        self.options = {
            a.dest: a for a in parser._actions if a.option_strings and a.dest != "help"}
        # torchrun's parser reads the environment when it is created, and creating it costs ten
        # times as much as parsing a line. Most lines are parsed without variables.
        self.without_variables = [self.made({}, launch) for launch in (False, True)]

    def get_args_parser(self):
        parser = self.run.get_args_parser()
        return with_later_options(parser, self.run.env) if self.adds_later_options else parser

    def parser(self, env, launch):
        return self.made(env, launch) if env else self.without_variables[launch]

    def made(self, env, launch):
        for name in [n for n in os.environ if n.startswith("PET_")]:
            del os.environ[name]
        os.environ.update(env)
        parser = self.get_args_parser()
        if launch:
            parser.add_argument("--use-env", "--use_env", default=False, action="store_true")

        def error(message):
            raise Stopped(message)

        parser.error = error
        parser.print_help = lambda file=None: None
        return parser

    def parse(self, argv, env, launch):
        try:
            parser = self.parser(env, launch)
        except ValueError:
            return {"outcome": "traceback"}
        try:
            values = vars(parser.parse_args(argv))
            values.pop("print_completion", None)  # It ends the parser and has no value.
            return {"outcome": "ok", "values": values}
        except Printed:
            return {"outcome": "exit", "option": "--print-completion"}
        except Stopped as stopped:
            return {"outcome": "error", "message": str(stopped)}
        except SystemExit as stopped:
            assert stopped.code in (0, None), stopped.code
            return {"outcome": "exit", "option": "--help"}

    def ambiguous(self, word, launch):
        parser = self.parser({}, launch)
        if not word.startswith("-") or word in ("-", "--") or word in parser._option_string_actions:
            return False
        if "=" in word and word.split("=", 1)[0] in parser._option_string_actions:
            return False
        return len(parser._get_option_tuples(word)) > 1


def generate(seed, count, peer):
    """Generates the lines, each as a dictionary for parse_lines."""
    rng = random.Random(seed)
    spellings = {d: list(a.option_strings) for d, a in peer.options.items()}
    every_name = [name for names in spellings.values() for name in names]
    ints = ["0", "1", "3", "-1", "-7", "+2", " 4 ", "1_0", "1__0", "_1", "007", "abc", "1.5", "",
            "0x10", "99999", "9" * 25, "-0", "\t8\n", "1 0"]
    floats = ["0.1", "5", "-1", "nan", "inf", "-Infinity", "1e-3", "1_0.5", ".5", "5.", ".", "x",
              "", " 2 ", "1e", "1e400", "1e-400", "-.5", "0x1p3", "1_.0", "INF", "+nan", "infinit"]
    texts = ["a", "", "-", "-1", "-1.5", "-.5", "-abc", "-a b", "0:3,1:1", "3", "1:4", "c10d",
             "host:29400", "[::1]:5", "k=v,a=b", "a,,b,c", ",", ",,,", "--", "a b", "it's", 'q"q',
             "é", "x=y", "=", "spawn", "fork", "bogus", "auto", "gpu:1,3", "-1\n", "\n", "-é",
             "$local_rank", "$$", "--x y", "-1e3"]
    switch_values = ["1", "0", "-1", " 1 ", "2", "1_0", "true", "yes", "on", "False", "NO", "off",
                     "", "maybe", "1.0", "00"]
    words_after = ["x.py", "--lr", "0.1", "-h", "--help", "--local", "--log", "--nnodes", "2", "--",
                   "-m", "-r3", "--r", "--s=1", "a b", "", "-", "--unknown", "-1", "--n", "--role"]

    def value_for(dest):
        action = peer.options.get(dest)
        if action is not None and action.type is int and rng.random() < 0.8:
            return rng.choice(ints)
        if action is not None and action.type is float and rng.random() < 0.8:
            return rng.choice(floats)
        if action is not None and action.choices and rng.random() < 0.7:
            return rng.choice(list(action.choices))
        return rng.choice(texts)

    def abbreviate(name):
        return name[: rng.randint(2, len(name))] if name.startswith("--") else name

    def misspell(name):
        kind = rng.randrange(4)
        if kind == 0:
            return name.upper()
        if kind == 1:
            at = [i for i, c in enumerate(name) if c in "-_" and i > 1]
            if at:
                i = rng.choice(at)
                return name[:i] + ("_" if name[i] == "-" else "-") + name[i + 1:]
        if kind == 2:
            return name + rng.choice(["x", "s", ":2", " "])
        return "-" + name[2:] if name.startswith("--") else "-" + name

    def option_words(launch):
        kind = rng.random()
        if launch and kind < 0.1:
            return [abbreviate(rng.choice(["--use-env", "--use_env"]))]
        if kind < 0.12:  # A cluster of short options.
            letters = "".join(rng.choice("mrthx3=1-") for _ in range(rng.randint(1, 4)))
            return ["-" + letters] + ([rng.choice(texts)] if rng.random() < 0.5 else [])
        if kind < 0.14:
            return [rng.choice(["-h", "--help", "--hel", "--h", "--he=1", "--bogus", "--bogus=1",
                                "-x", "-q3", "---nnodes", "--=1", "-=3", "--local_rank=0", "--p=zsh", "--log", "--log-",
                                "--log-l", "--log_=1"])]
        name = rng.choice(every_name)
        dest = next(d for d, names in spellings.items() if name in names)
        spelled = name
        if rng.random() < 0.3:
            spelled = abbreviate(name)
        elif rng.random() < 0.06:
            spelled = misspell(name)
        takes = dest not in peer.switches
        if rng.random() < 0.06:
            takes = not takes
        if not takes:
            return [spelled]
        value = value_for(dest)
        if rng.random() < 0.4:
            return [spelled + "=" + value]
        if not name.startswith("--") and rng.random() < 0.5:
            return [spelled + value]
        if rng.random() < 0.05:
            return [spelled]
        return [spelled, value]

    for _ in range(count):
        launch = rng.random() < 0.2
        argv = []
        for _ in range(rng.choice([0, 0, 1, 1, 1, 2, 2, 3, 4, 6])):
            argv += option_words(launch)
        if rng.random() < 0.12:
            argv.append("--")
        if rng.random() < 0.92:
            argv.append(rng.choice(["x", "train.py", "-", "", "-1", "a b", "--", "é"]))
        if rng.random() < 0.1:
            argv.append("--")
        for _ in range(rng.choice([0, 0, 1, 2, 4])):
            argv += option_words(launch) if rng.random() < 0.3 else [rng.choice(words_after)]
        env = {}
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2, 3])):
            dest = rng.choice(sorted(peer.options))
            value = rng.choice(switch_values) if dest in peer.switches else value_for(dest)
            if "\0" not in value:
                env["PET_" + dest.upper()] = value
        if rng.random() < 0.05:
            env[rng.choice(["PET_M", "PET_R", "PET_USE_ENV", "PET_TRAINING_SCRIPT"])] = "1"
        yield {"argv": argv, "env": env, "launch": launch}


def plain(value):
    """Converts values so that nan equals nan and 1 does not equal 1.0 or true."""
    if isinstance(value, dict):
        if set(value) == {"float"}:
            return "float " + repr(float(value["float"]))
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return "float " + repr(value)
    return f"{type(value).__name__} {value!r}"


def same(ours, theirs):
    if ours["outcome"] != theirs["outcome"]:
        return False
    if ours["outcome"] == "ok":
        return plain(ours["values"]) == plain(theirs["values"])
    if ours["outcome"] == "error":
        # muster appends the variable's name if the value came from a variable.
        return ours["message"].split(" (from ")[0] == theirs["message"].split(" (from ")[0]
    return ours["option"] == theirs["option"]


def is_integer(text):
    try:
        int(text)
        return True
    except ValueError:
        return False


def wide_integer(text):
    return is_integer(text) and not -2**63 <= int(text) < 2**63


def compare(line, ours, peer, full):
    """As compare_with(), for the parser `peer` of a release and the same parser `full` with the
    options of later releases. Where the two agree, the release needs no class of its own."""
    classes = compare_with(line, ours, full)
    if classes is None or full is peer:
        return classes
    argv, env, launch = line["argv"], line["env"], line["launch"]
    as_full = full.parse(argv, env, launch)
    if as_full.get("values", {}).get("log_line_prefix_template") == "":
        del as_full["values"]["log_line_prefix_template"]
    if plain(peer.parse(argv, env, launch)) == plain(as_full):
        return classes
    # A word after the script may be the reason, too: torchrun looks for ambiguous ones there.
    meant = [w for w in argv if len(w) > 2 and any(n.startswith(w.split("=")[0]) for n in LATER_NAMES)]
    return classes + [LATER_OPTION] if meant or "PET_LOG_LINE_PREFIX_TEMPLATE" in env else None


def compare_with(line, ours, peer):
    """The classes of intended differences in this line, or None if a difference is unexplained.

    Each class rewrites the line into one that torchrun must read as muster reads the original.
    """
    argv, env, launch = line["argv"], dict(line["env"]), line["launch"]
    theirs = peer.parse(argv, env, launch)
    if same(ours, theirs):
        return []
    classes = []

    if with_token(argv, ours) != argv:
        argv = with_token(argv, ours)
        classes.append("dashes-as-value")
    if any(value == "" for value in env.values()):
        env = {name: value for name, value in env.items() if value != ""}
        classes.append("empty-variable")
    bad = []
    for dest in peer.switches:
        name = "PET_" + dest.upper()
        word = env.get(name, "1").strip().lower()
        if word in TRUE_WORDS | FALSE_WORDS:
            env[name] = "1" if word in TRUE_WORDS else "0"
            classes.append("switch-word")
        elif not is_integer(env.get(name, "1")):
            del env[name]
            bad.append(dest)
    if bad:
        # muster must report one such variable whose option is not in the line, after all errors of
        # the line.
        named = [d for d in bad if f"(from PET_{d.upper()})" in ours.get("message", "")]
        without = peer.parse(neutral(argv, ours, launch, peer), env, launch)
        if not named:
            classes.append("switch-variable-overruled")
        elif without["outcome"] == "ok" and not without["values"][named[0]]:
            return classes + ["switch-variable-bad"]
        elif without["outcome"] == "error" and (
                without["message"].startswith(("the following", "unrecognized"))
                or "invalid" in without["message"]):
            return classes + ["switch-variable-bad"]
        else:
            return None
    wide = [v for v in list(env.values()) + argv + [w.split("=", 1)[-1] for w in argv]
            if wide_integer(v)]
    if wide and ours["outcome"] == "error" and "invalid int value" in ours["message"]:
        if any(repr(value) in ours["message"] for value in wide):
            # torchrun may report another outcome only if its cause is later in the line.
            return classes + ["integer-too-large"]
    neutralised = neutral(argv, ours, launch, peer)
    if neutralised != argv:
        classes.append("ambiguous-after-script")
    theirs = without_token(peer.parse(neutralised, env, launch))
    if theirs["outcome"] == "ok":
        restore = dict(zip(neutralised, argv))
        values = theirs["values"]
        values["training_script_args"] = [restore.get(w, w) for w in values["training_script_args"]]
    return classes if classes and same(ours, theirs) else None


def neutral(argv, ours, launch, peer):
    """The line with a plain word in place of each ambiguous word after the script."""
    at = ours["script_at"]
    end = argv.index("--") if "--" in argv else len(argv)  # argparse reads no options after "--".
    return [f"\1{i}" if at < i < end and peer.ambiguous(word, launch) else word
            for i, word in enumerate(argv)]


def with_token(argv, ours):
    """The line with a plain word in place of each "--" that is attached to an option as its value."""
    return [word[:-2] + TOKEN
            if i < ours["script_at"] and len(word) > 2 and word[0] == "-" and word.endswith("--")
            else word for i, word in enumerate(argv)]


def without_token(outcome):
    """The outcome of a line of with_token(), with "--" in place of the plain word."""
    if isinstance(outcome, dict):
        return {name: without_token(value) for name, value in outcome.items()}
    if isinstance(outcome, list):
        return [without_token(value) for value in outcome]
    return outcome.replace(TOKEN, "--") if isinstance(outcome, str) else outcome


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program")
    options.add_argument("--release", help="such as 2.15.0; default: that of this Python's torch")
    options.add_argument("--releases", type=pathlib.Path,
                         help="a folder with the Python part of releases: VERSION/torch/...")
    options.add_argument("--count", type=int, default=sample(10000))
    options.add_argument("--seed", type=int, default=20130)
    options = options.parse_args()
    if importlib.util.find_spec("torch") is None:
        print(f"parser_diff: skipped: {sys.executable} has no torch")
        return SKIPPED
    installed = importlib.metadata.version("torch").split("+")[0]
    folder = None
    if options.release == installed:
        print("parser_diff: skipped: this is the installed torch, which the test parser_diff compares")
        return SKIPPED
    if options.release is not None:
        folder = options.releases / options.release
        if not (folder / "torch/distributed/run.py").exists():
            print(f"parser_diff: skipped: {sys.executable} has torch {installed}, and {folder} is "
                  f"not there: scripts/torch_release {options.release} fetches it")
            return SKIPPED
    run = load_run(folder)
    peer = full = Peer(run, adds_later_options=False)
    if not set(LATER_NAMES) <= set(run.get_args_parser()._option_string_actions):
        full = Peer(run, adds_later_options=True)
    lines = list(generate(options.seed, options.count, full))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    ran = subprocess.run([options.program], input=text, capture_output=True, text=True, check=True)
    ours = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(ours) == len(lines), (len(ours), len(lines))

    reasons = ON_PURPOSE if full is peer else {**ON_PURPOSE, LATER_OPTION: LATER_REASON}
    outcomes, classes, unexplained = collections.Counter(), collections.Counter(), []
    for line, one in zip(lines, ours):
        met = compare(line, one, peer, full)
        outcomes[one["outcome"]] += 1
        if met is None:
            unexplained.append((line, one, peer.parse(line["argv"], line["env"], line["launch"])))
        else:
            classes.update(set(met))
    print(f"parser_diff: torch {options.release or installed}, seed {options.seed}: {len(lines)} lines "
          f"compared: {outcomes['ok']} parsed, {outcomes['exit']} help or completion, "
          f"{outcomes['error']} usage errors")
    for name, why in reasons.items():
        print(f"  on purpose: {classes[name]:5}  {name}: {why}")
    print(f"  unexplained: {len(unexplained)}")
    for line, one, theirs in unexplained[:WHERE]:
        print(f"\nline   {json.dumps(line)}\nmuster {one}\ntorchrun {theirs}")
    # If a class never occurs, the generator no longer reaches it.
    unmet = [name for name in reasons if not classes[name]] if options.count >= 10000 else []
    if unmet:
        print("  never met: " + ", ".join(unmet))
    return 1 if unexplained or unmet else 0


if __name__ == "__main__":
    sys.exit(main())
