#!/usr/bin/env python3
"""Compares muster with the releases of PyTorch whose facts are in this folder (scripts/torch_release), and checks that
the documents name every difference between the releases. Needs no torch.

releases_test.py PROGRAMS SOURCE: the folder of muster_facts and state_tool, and that of the sources.
"""
import contextlib
import copy
import io
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import compare  # noqa: E402
import cpp_facts  # noqa: E402
import python_facts  # noqa: E402

PROGRAMS, SOURCE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
RELEASES = compare.load(HERE)
REFERENCE = "2.13.0"


class Muster(unittest.TestCase):
    """muster does what each release does."""

    @classmethod
    def setUpClass(cls):
        cls.muster = compare.facts_of_muster(PROGRAMS, RELEASES)

    def test_muster_does_what_each_release_does(self):
        self.assertGreaterEqual(len(RELEASES), 3)
        documents = compare.documented(SOURCE)
        for release, facts in RELEASES.items():
            with self.subTest(release):
                found = compare.against_muster(release, facts, self.muster, SOURCE, PROGRAMS)
                self.assertEqual(compare.not_admitted(found, documents), [])

    def test_muster_has_no_option_that_no_release_has(self):
        newest = RELEASES[max(RELEASES, key=lambda r: [int(n) for n in r.split(".")])]
        known = {compare.long_name(o) for o in [*newest["options"], *newest["launch_options"]]}
        self.assertEqual({compare.long_name(o) for o in self.muster["options"]} - known - {"--help"}, set())

    def test_a_release_that_does_something_else_is_noticed(self):
        """Each kind of fact: a made-up release differs in it, and muster is then said to differ."""
        def option(facts):
            facts["options"].append({"names": ["--new-one", "--new_one"], "action": "env", "default": "7",
                                     "help": "", "variable": "PET_NEW_ONE"})

        def default(facts):
            one = next(o for o in facts["options"] if "--max-restarts" in o["names"])
            one["default"] = 5

        def key(facts):
            facts["rdzv_keys"]["new_timeout"] = {"dynamic_rendezvous.py": 5}

        def variable(facts):
            facts["variables_of_launcher"]["TORCHELASTIC_NEW_ONE"] = ["run.py:main"]

        def worker_variable(facts):
            facts["worker_variables"].append("NEW_RANK")

        def macro(facts):
            facts["prefix_macros"].append("attempt_number")

        def query(facts):
            facts["store_queries"].append("QUEUE_PEEK")

        def state(facts):
            facts["state"]["pickle"] = facts["state"]["pickle"].replace("A", "B", 3)

        def error_file(facts):
            facts["error_file"]["written"].append("newField")

        def nccl(facts):
            facts["nccl"] = {"variable": "TORCH_DIST_USE_NCCL2", "value": "2", "binds_a_device": True,
                             "then": "_create_nccl_process_group", "otherwise": "_create_nccl2_process_group"}

        for change in (option, default, key, variable, worker_variable, macro, query, state, error_file, nccl):
            with self.subTest(change.__name__):
                facts = copy.deepcopy(RELEASES[REFERENCE])
                change(facts)
                muster = compare.facts_of_muster(PROGRAMS, {REFERENCE: facts})
                before = compare.against_muster(REFERENCE, RELEASES[REFERENCE], muster, SOURCE, PROGRAMS)
                after = compare.against_muster(REFERENCE, facts, muster, SOURCE, PROGRAMS)
                self.assertEqual(before, [])
                self.assertNotEqual(after, [])
                if change is not state:
                    self.assertNotEqual(compare.between(RELEASES[REFERENCE], facts), [])


class Documents(unittest.TestCase):
    def test_the_documents_name_every_difference(self):
        documents = compare.documented(SOURCE)
        for release, facts in RELEASES.items():
            with self.subTest(release):
                found = compare.between(RELEASES[REFERENCE], facts)
                self.assertEqual(compare.undocumented(found, documents), [])

    def test_a_difference_without_a_row_is_noticed(self):
        documents = compare.documented(SOURCE)
        found = compare.between(RELEASES[REFERENCE], RELEASES["2.15.0"])
        self.assertGreater(len(found), 10)
        for key in {d.key for d in found}:
            without = {name: text for name, text in documents.items() if name != key}
            self.assertEqual({d.key for d in compare.undocumented(found, without)}, {key})

    def test_each_row_says_what_muster_does(self):
        for name, text in compare.documented(SOURCE).items():
            self.assertTrue(text, name)


class Reader(unittest.TestCase):
    """The readers, on sources that are made up."""

    def release(self, **files):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        for name in ("distributed/run.py", *files):
            path = root / "torch" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files.get(name, ""))
        return root

    def test_options(self):
        root = self.release(**{"distributed/run.py": """
parser.add_argument("-q", "--quick-one", "--quick_one", action=env, type=int, default=3, help="some " "words")
parser.add_argument("--slow", action=check_env, choices=["a", "b"])
parser.add_argument("script", nargs=REMAINDER)
"""})
        release = python_facts.Release(root)
        quick, slow, script = python_facts.options(release.source("distributed/run.py"))
        self.assertEqual(quick, {"names": ["-q", "--quick-one", "--quick_one"], "action": "env", "default": 3,
                                 "type": "int", "variable": "PET_QUICK_ONE", "help": python_facts.digest("some words")})
        self.assertEqual(slow["choices"], "['a', 'b']")
        self.assertEqual(script, {"names": ["script"], "action": None, "nargs": "REMAINDER", "help": python_facts.digest("")})

    def test_variables(self):
        root = self.release(**{"distributed/elastic/a.py": """
NAME = "A_CONSTANT"
def one():
    other = NAME
    os.getenv(other)
    os.environ["DIRECT"]
    if "ASKED" in os.environ: pass
    for each in ("LOOPED", "TWICE"): os.environ.get(each)
    os.environ.get(whatever())
    os.environ["SET_HERE"] = "1"
    worker_env = {"IN_DICT": "1"}
    worker_env["ADDED"] = "2"
"""})
        release = python_facts.Release(root)
        read = python_facts.variables_read(release, python_facts.LAUNCHER)
        self.assertEqual(sorted(read), ["?whatever()", "ASKED", "A_CONSTANT", "DIRECT", "LOOPED", "TWICE"])
        self.assertEqual(read["A_CONSTANT"], ["elastic/a.py:one"])
        self.assertEqual(python_facts.worker_variables(release), ["ADDED", "IN_DICT", "SET_HERE"])

    def test_settings_of_the_rendezvous(self):
        root = self.release(**{"distributed/elastic/rendezvous/x.py": """
params.get("one", "tcp"); params.get_as_int("two", 60); _get_timeout(params, "join"); params.config["three"]
unrelated.get("four")
"""})
        self.assertEqual(python_facts.rdzv_keys(python_facts.Release(root)), {
            "join_timeout": {"x.py": None}, "one": {"x.py": "tcp"}, "three": {"x.py": None}, "two": {"x.py": 60}})

    def test_signatures(self):
        text = cpp_facts.plain("""
// class Widget { Widget(int commented_out); };
class TORCH_API Widget : public Base {
 public:
  explicit Widget(std::vector<std::pair<int, long>> items, const Options& options = Options{}, bool = false);
  virtual void start(int rank) const { if (rank) { other(rank); } }
  Widget(const Widget&) = delete;
  int size_ = compute(3);
};
""")
        body = cpp_facts.class_body(text, "Widget")
        found = {name: cpp_facts.signature(name, text, place) for name, text, place in cpp_facts.members(body)}
        self.assertEqual(found, {"Widget": "Widget(std::vector<std::pair<int,long>>, const Options&=, bool=)",
                                 "start": "void start(int) const"})
        self.assertEqual(cpp_facts.enumerators("enum class Kind : uint8_t { ONE, TWO = 4,\n THREE };", "Kind"),
                         ["ONE", "TWO", "THREE"])

    def test_no_release(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(FileNotFoundError):
            python_facts.Release(pathlib.Path(folder))


class Script(unittest.TestCase):
    """scripts/torch_release itself, on a wheel that is made up."""

    def run_script(self, *words):
        import importlib.machinery
        import importlib.util
        path = str(SOURCE / "scripts/torch_release")
        loader = importlib.machinery.SourceFileLoader("torch_release", path)
        script = importlib.util.module_from_spec(importlib.util.spec_from_loader("torch_release", loader))
        loader.exec_module(script)
        with tempfile.TemporaryDirectory() as folder:
            script.FOLDER = pathlib.Path(folder)
            sys.argv[1:] = words
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    code = script.main()
                except SystemExit as stopped:
                    code = stopped.code
        return code, out.getvalue() + err.getvalue()

    def test_a_wrong_version_or_wheel_is_named(self):
        code, text = self.run_script("2.15")
        self.assertEqual(code, 2)
        self.assertIn("'2.15': expected a release", text)
        with tempfile.NamedTemporaryFile(suffix=".whl") as wheel:
            wheel.write(b"no zip file")
            wheel.flush()
            code, text = self.run_script("2.15.0", "--wheel", wheel.name)
        self.assertEqual(code, 3)
        self.assertIn("File is not a zip file", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
