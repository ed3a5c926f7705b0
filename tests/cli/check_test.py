# SPDX-License-Identifier: Apache-2.0
"""tidemark check and tidemark baseline, seen from outside: what fails a pull request, what it says, what it writes."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

PROGRAM = os.environ["TIDEMARK_PROGRAM"]
TESTS = pathlib.Path(__file__).resolve().parent.parent

# Tensor-parallel ranks that gather their inputs into one pool, and free each after its use.
JOB = """network: {name: small, layers: 3, hidden: 192, ffn: 768, heads: 4, kv_heads: 4, vocabulary: 1536}
machine: cpu
sequence_length: 128
micro_batch_size: 8
accumulation_steps: 2
layout: {tp: 2}
strategy: nanotron
"""
ONE_RANK = JOB.replace("{tp: 2}", "{dp: 1}").replace("nanotron", "ddp-last")
SCENARIOS = """scenarios:
  - name: gathers
    job: jobs/job.yaml
  - name: other
    job: jobs/job.yaml
    set: {layout: {tp: 1, dp: 2}}
    budget: 8 GiB
"""


def run(*arguments, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False, env={**kept, **environment})


class Gate(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.scenarios, self.baseline = self.folder / "scenarios.yaml", self.folder / "baseline.json"
        self.write(SCENARIOS)
        (self.folder / "jobs").mkdir()
        (self.folder / "jobs" / "job.yaml").write_text(JOB)
        (self.folder / "jobs" / "one.yaml").write_text(ONE_RANK)

    def write(self, text):
        self.scenarios.write_text(text)

    def update(self, reason="as it is"):
        done = run("baseline", "update", self.scenarios, "--baseline", self.baseline, "--reason", reason)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def check(self, *options, code=0, **environment):
        done = run("check", self.scenarios, "--baseline", self.baseline, *options, **environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def verdicts(self, *options, code=0):
        report = json.loads(self.check("--format", "json", *options, code=code).stdout)
        self.assertEqual(report["schema"], "tidemark.check/1")
        return {scenario["name"]: scenario for scenario in report["scenarios"]}


class Predicted(Gate):
    def test_nothing_changed_passes_and_leaves_the_baseline_alone(self):
        self.update()
        before = self.baseline.read_bytes()
        self.assertEqual({s["verdict"] for s in self.verdicts().values()}, {"pass"})
        self.assertEqual(self.baseline.read_bytes(), before)
        self.assertEqual(self.check().stdout, self.check().stdout)

    def test_the_peak_is_that_of_predict(self):
        self.update()
        predicted = json.loads(run("predict", self.folder / "jobs" / "job.yaml", "--format", "json").stdout)
        self.assertEqual(self.verdicts()["gathers"]["peak_bytes"], predicted["peak"]["allocated_bytes"])

    def test_a_buffer_that_is_kept_longer_fails_and_is_named(self):
        self.update()
        self.write(SCENARIOS.replace("jobs/job.yaml\n  - name: other", "jobs/job.yaml\n    set: {buffers.tp_gather: cached}\n  - name: other"))
        found = self.verdicts(code=1)
        grown = found["gathers"]
        self.assertEqual((grown["verdict"], found["other"]["verdict"]), ("grown", "pass"))
        self.assertGreater(grown["delta_bytes"], 0)
        self.assertEqual(sum(row["bytes"] for row in grown["grown"] + grown["shrunk"]), grown["delta_bytes"])
        # Each of 3 layers keeps its gathered input of attention from forward to backward: 128 * 8 tokens of 192 numbers
        # of 2 bytes.
        rows = {row["tensor"]: row for row in grown["grown"]}
        kept = rows["layer.qkv_in"]
        self.assertEqual((kept["category"], kept["bytes"], kept["phase"], kept["until_phase"]),
                         ("tp_gather", 3 * 128 * 8 * 192 * 2, "forward 0", "backward 0"))
        self.assertIn({"key": "buffers.tp_gather", "before": "pooled", "after": "cached"}, grown["job_changed"])
        text = self.check(code=1).stdout
        for part in ("gathers", "tp_gather", "layer.qkv_in", "+1.12 MiB", "forward 0", "baseline update"):
            self.assertIn(part, text)

    def test_growth_without_any_change_of_the_job_is_found_as_well(self):
        """As where the model itself has changed: here the baseline is what an older one would have said."""
        self.update()
        baseline = json.loads(self.baseline.read_text())
        entry = baseline["scenarios"]["gathers"]
        smaller = next(live for live in entry["live"] if live["name"] == "layer.k")
        smaller["bytes"] -= 1
        entry["peak_bytes"] -= 1
        self.baseline.write_text(json.dumps(baseline))
        grown = self.verdicts(code=1)["gathers"]
        self.assertEqual((grown["verdict"], grown["delta_bytes"], grown["job_changed"]), ("grown", 1, []))
        self.assertEqual([(row["tensor"], row["bytes"]) for row in grown["grown"]], [("layer.k", 1)])

    def test_a_shrink_passes_and_says_how_to_renew_the_baseline(self):
        self.write(SCENARIOS.replace("job: jobs/job.yaml\n  - ", "job: jobs/job.yaml\n    set: {buffers.tp_gather: cached}\n  - "))
        self.update()
        self.write(SCENARIOS)
        done = self.check()
        self.assertIn("PASSED", done.stdout)
        self.assertIn("shrunk", done.stdout)
        command = next(line for line in done.stdout.splitlines() if "tidemark baseline update" in line)
        again = run(*command.replace("'...'", "shrank").split()[1:])
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("~ gathers", again.stdout)
        self.assertEqual(self.verdicts()["gathers"]["verdict"], "pass")

    def test_a_missing_baseline_fails(self):
        self.assertEqual({s["verdict"] for s in self.verdicts(code=1).values()}, {"new"})
        self.assertIn("there is no baseline", self.check(code=1).stdout)
        self.assertFalse(self.baseline.exists())
        self.check("--exit-zero")

    def test_a_lost_scenario_and_a_new_one_fail(self):
        self.update()
        self.write(SCENARIOS.replace("other", "renamed"))
        found = self.verdicts(code=1)
        self.assertEqual({name: s["verdict"] for name, s in found.items()}, {"gathers": "pass", "renamed": "new", "other": "lost"})
        self.assertIn("- other", self.update())
        self.assertEqual(set(self.verdicts()), {"gathers", "renamed"})

    def test_a_budget_is_held_as_predict_holds_a_device(self):
        self.update()
        predicted = json.loads(run("predict", self.folder / "jobs" / "job.yaml", "--set", "layout={tp: 1, dp: 2}", "--format",
                                   "json").stdout)
        needed = predicted["peak"]["device_bytes"]["high"]
        for budget, verdict in ((needed, "pass"), (needed - 1, "over_budget")):
            self.write(SCENARIOS.replace("8 GiB", str(budget)))
            self.assertEqual(self.verdicts(code=int(verdict != "pass"))["other"]["verdict"], verdict)
        self.write(SCENARIOS.replace("8 GiB", "2 MiB"))
        self.assertEqual(self.verdicts(code=1)["other"]["verdict"], "over_budget")

    def test_one_broken_job_does_not_hide_the_others(self):
        self.update()
        self.write(SCENARIOS.replace("{tp: 1, dp: 2}", "{tq: 1}"))
        found = self.verdicts(code=1)
        self.assertEqual((found["other"]["verdict"], found["gathers"]["verdict"]), ("error", "pass"))
        self.assertIn("layout.tq: there is no such key", found["other"]["message"])
        self.assertEqual(found["other"]["hint"], "did you mean layout.tp?")
        done = run("baseline", "update", self.scenarios, "--baseline", self.baseline, "--reason", "none")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("scenario 'other'", done.stderr)

    def test_renewing_keeps_the_reason_of_what_has_not_changed(self):
        self.update("the first")
        self.write(SCENARIOS.replace("dp: 2}", "dp: 4}"))
        self.assertIn("1 renewed, 1 unchanged", self.update("more ranks"))
        reasons = {name: entry["reason"] for name, entry in json.loads(self.baseline.read_text())["scenarios"].items()}
        self.assertEqual(reasons, {"gathers": "the first", "other": "more ranks"})
        before = self.baseline.read_bytes()
        self.update("again")
        self.assertEqual(self.baseline.read_bytes(), before)


class Outputs(Gate):
    def fail(self, *options, **environment):
        self.update()
        self.write(SCENARIOS.replace("{tp: 1, dp: 2}", "{tp: 2, dp: 2}").replace("8 GiB", "2 MiB").replace("gathers", "a:b,c%d"))
        return self.check(*options, code=1, **environment)

    def test_all_of_them_come_out_of_one_run(self):
        junit, benchmark, markdown = (self.folder / name for name in ("junit.xml", "bench.json", "comment.md"))
        done = self.fail("--junit", junit, "--github-benchmark", benchmark, "--markdown", markdown, "--format", "json")
        self.assertEqual(json.loads(done.stdout)["failed"], 3)
        suite = xml.etree.ElementTree.parse(junit).getroot().find("testsuite")
        cases = [(case.get("classname"), case.get("name"), case.find("failure") is not None) for case in suite]
        self.assertIn(("other", "budget", True), cases)
        self.assertIn(("gathers", "peak memory", True), cases)  # lost
        self.assertEqual((suite.get("tests"), suite.get("failures")), (str(len(cases)), str(sum(case[2] for case in cases))))
        rows = json.loads(benchmark.read_text())
        self.assertEqual({row["unit"] for row in rows}, {"bytes"})
        self.assertTrue(all(isinstance(row["value"], int) for row in rows))
        self.assertIn("| other | over\\_budget |", markdown.read_text())

    def test_annotations_and_summary_are_for_github_only(self):
        self.assertNotIn("::error", self.fail().stderr)
        summary = self.folder / "summary.md"
        summary.write_text("before\n")
        done = self.check(code=1, GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(summary), GITHUB_WORKSPACE=str(self.folder))
        lines = [line for line in done.stderr.splitlines() if line.startswith("::")]
        self.assertEqual(len(lines), 3)
        self.assertTrue(lines[0].startswith("::error file=scenarios.yaml,line=2,title=a%3Ab%2Cc%25d%3A new::"), lines[0])
        self.assertNotIn("::error", done.stdout)
        text = summary.read_text()
        self.assertTrue(text.startswith("before\n## Peak memory"))
        self.assertEqual(self.check("--github", code=1).stderr, done.stderr.replace("file=scenarios", f"file={self.folder}/scenarios")
                         .replace("file=baseline", f"file={self.folder}/baseline"))

    def test_an_output_that_cannot_be_written_hides_neither_the_verdict_nor_the_others(self):
        markdown = self.folder / "comment.md"
        done = run("check", self.scenarios, "--baseline", self.baseline, "--github", "--markdown", markdown,
                   GITHUB_STEP_SUMMARY=str(self.folder / "none" / "s.md"))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("No such file or directory", done.stderr)
        self.assertIn("Peak memory", done.stdout)
        self.assertIn("Peak memory", markdown.read_text())

    def test_outputs_of_one_file_by_two_names_are_refused(self):
        outputs = ("--junit", os.path.relpath(self.folder / "b"), "--markdown", f"{self.folder}/./b")
        done = run("check", self.scenarios, "--baseline", self.baseline, *outputs)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("named for two outputs", done.stderr)

    def test_the_same_input_gives_the_same_bytes(self):
        texts = []
        for name in ("one", "two"):
            self.fail("--junit", self.folder / name)
            texts.append((self.folder / name).read_bytes())
            self.write(SCENARIOS)
        self.assertEqual(texts[0], texts[1])


class Measured(Gate):
    """mode: run executes the job, here on one rank of this machine's processor."""

    SCENARIOS = "scenarios:\n  - {name: measured, job: jobs/one.yaml, mode: run, steps: 2}\n  - {name: predicted, job: jobs/job.yaml}\n"
    made = []  # the baseline, by whichever test comes first: the job is not executed for each

    def setUp(self):
        super().setUp()
        self.write(self.SCENARIOS)
        if not self.made:
            self.update()
            self.made.append(self.baseline.read_bytes())
        self.baseline.write_bytes(self.made[0])

    def edit(self, change):
        baseline = json.loads(self.baseline.read_text())
        change(baseline["scenarios"]["measured"])
        self.baseline.write_text(json.dumps(baseline))

    def test_what_was_measured_is_what_run_measures(self):
        measured = self.verdicts()["measured"]
        ran = json.loads(run("run", self.folder / "jobs" / "one.yaml", "--steps", "2", "--format", "json").stdout)
        self.assertEqual((measured["verdict"], measured["mode"], measured["tolerance_percent"]), ("pass", "run", 5))
        self.assertEqual(measured["peak_bytes"], ran["peak"]["allocated_bytes"])

    def test_other_hardware_fails_for_measured_peaks_only(self):
        self.edit(lambda entry: entry["hardware"].update(architecture="riscv64"))
        found = self.verdicts(code=1)
        self.assertEqual((found["measured"]["verdict"], found["predicted"]["verdict"]), ("error", "pass"))
        self.assertIn("architecture riscv64 -> ", found["measured"]["message"])
        self.assertIn("tidemark baseline promote", found["measured"]["hint"])

    def test_a_measured_peak_passes_within_its_tolerance(self):
        def shrink(by):
            def change(entry):
                parameter = max((live for live in entry["live"]), key=lambda live: live["bytes"])
                lower = int(entry["peak_bytes"] * by)
                entry["peak_bytes"] -= lower
                parameter["bytes"] -= lower
            return change

        self.edit(shrink(0.04))
        self.assertEqual(self.verdicts()["measured"]["verdict"], "pass")
        self.edit(shrink(0.04))
        self.assertEqual(self.verdicts(code=1)["measured"]["verdict"], "grown")
        self.write(self.SCENARIOS.replace("steps: 2", "steps: 2, tolerance: 20 %"))
        self.assertEqual(self.verdicts()["measured"]["verdict"], "pass")

    def test_a_run_is_promoted_to_the_scenario_with_its_job(self):
        self.edit(lambda entry: entry["hardware"].update(architecture="riscv64"))
        document = self.folder / "run.json"
        document.write_text(run("run", self.folder / "jobs" / "one.yaml", "--steps", "2", "--format", "json").stdout)
        done = run("baseline", "promote", document, "--baseline", self.baseline, "--reason", "another machine")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("~ measured", done.stdout)
        self.assertEqual(self.verdicts()["measured"]["verdict"], "pass")
        self.assertEqual(json.loads(self.baseline.read_text())["scenarios"]["measured"]["reason"], "another machine")

    def test_a_run_that_is_in_doubt_is_no_baseline(self):
        document = self.folder / "run.json"
        told = json.loads(run("run", self.folder / "jobs" / "one.yaml", "--steps", "2", "--format", "json").stdout)
        told["validity"] = {"ok": False, "reasons": ["12 records were dropped"]}
        document.write_text(json.dumps(told))
        before = self.baseline.read_bytes()
        done = run("baseline", "promote", document, "--baseline", self.baseline, "--reason", "x")
        self.assertEqual(done.returncode, 2)
        self.assertIn("12 records were dropped", done.stderr)
        self.assertEqual(self.baseline.read_bytes(), before)

    def test_a_number_beyond_all_numbers_is_bad_input(self):
        self.baseline.write_text('{"schema": "tidemark.baseline/1", "scenarios": {"a": 1e999}}')
        done = run("check", self.scenarios, "--baseline", self.baseline)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("beyond all numbers", done.stderr)

    def test_a_run_of_another_job_needs_the_name_of_its_scenario(self):
        document = self.folder / "run.json"
        document.write_text(run("run", self.folder / "jobs" / "one.yaml", "--set", "micro_batch_size=4", "--format", "json").stdout)
        promote = ("baseline", "promote", document, "--baseline", self.baseline, "--reason", "smaller")
        done = run(*promote)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no measured scenario", done.stderr)
        for name in ("two\nlines", ""):
            self.assertEqual(run(*promote, "--scenario", name).returncode, 2)
        self.assertEqual(run(*promote, "--scenario", "measured").returncode, 0)
        grown = self.verdicts(code=1)["measured"]
        self.assertIn({"key": "micro_batch_size", "before": "4", "after": "8"}, grown["job_changed"])

    def test_a_run_does_not_take_the_place_of_a_prediction(self):
        self.write(SCENARIOS)
        self.update()
        document, before = self.folder / "run.json", self.baseline.read_bytes()
        document.write_text(run("run", self.folder / "jobs" / "one.yaml", "--format", "json").stdout)
        done = run("baseline", "promote", document, "--baseline", self.baseline, "--reason", "no", "--scenario", "gathers")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("'gathers' is a predicted scenario", done.stderr)
        self.assertEqual(self.baseline.read_bytes(), before)

    def test_a_run_that_cannot_be_is_an_error_of_that_scenario(self):
        self.write(self.SCENARIOS.replace("steps: 2", "set: {machine: h100-sxm-80gb, network: resnet.json}"))
        found = self.verdicts(code=1)
        self.assertEqual((found["measured"]["verdict"], found["predicted"]["verdict"]), ("error", "pass"))
        self.assertIn("resnet.json", found["measured"]["message"])


class BadInput(Gate):
    def refused(self, *sentences, arguments=None):
        done = run(*(arguments or ("check", self.scenarios, "--baseline", self.baseline)))
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        lines = done.stderr.splitlines()
        self.assertLessEqual(len(lines), 2, done.stderr)
        self.assertTrue(lines[0].startswith("tidemark: error: "))
        for sentence in sentences:
            self.assertIn(sentence, done.stderr)

    def test_scenarios_that_are_wrong_say_where(self):
        self.write(SCENARIOS.replace("budget", "bugdet"))
        self.refused("scenarios.yaml:7: bugdet: there is no such key", "did you mean budget?")
        self.write("scenarios: [")
        self.refused("is not valid YAML")
        self.write(SCENARIOS.replace("gathers", "other"))
        self.refused("'other' is also the scenario in line 2")
        self.write("scenarios: []")
        self.refused("found an empty one")
        self.write("scenarios: [{name: a}]")
        self.refused("lacks 'job'", "for example job: ../jobs/")
        self.scenarios.unlink()
        self.refused("there is no such file")

    def test_a_baseline_that_is_wrong_says_where(self):
        self.baseline.write_text("{}")
        self.refused("is no tidemark.baseline/1")
        self.update_fails()
        self.baseline.write_text("{\n<<<<<<< ours\n")
        self.refused("baseline.json:2: is not valid JSON", "marks of a merge")

    def update_fails(self):
        self.refused("is no tidemark.baseline/1", arguments=("baseline", "update", self.scenarios, "--baseline", self.baseline,
                                                             "--reason", "none"))
        self.assertEqual(self.baseline.read_text(), "{}")

    def test_nothing_that_is_read_is_overwritten(self):
        before = self.scenarios.read_text()
        self.refused("would be overwritten", arguments=("check", self.scenarios, "--baseline", self.baseline, "--junit", self.scenarios))
        self.refused("would be overwritten", arguments=("baseline", "update", self.scenarios, "--baseline", self.scenarios, "--reason", "x"))
        self.refused("named for two outputs", arguments=("check", self.scenarios, "--baseline", self.baseline, "--junit", self.folder / "x",
                                                         "--markdown", self.folder / "x"))
        self.assertEqual(self.scenarios.read_text(), before)

    def test_what_is_promoted_must_be_a_run(self):
        self.refused("is no tidemark.run/1", arguments=("baseline", "promote", TESTS / "gate" / "baseline.json", "--baseline",
                                                        self.baseline, "--reason", "x"))
        self.assertFalse(self.baseline.exists())

    def test_a_reason_is_asked_for(self):
        done = run("baseline", "update", self.scenarios, "--baseline", self.baseline)
        self.assertEqual((done.returncode, "--reason" in done.stderr), (2, True), done.stderr)
        self.assertEqual(run("baseline", "renew", self.scenarios, "--baseline", self.baseline, "--reason", "x").returncode, 2)


class Project(unittest.TestCase):
    def test_holds_itself_to_its_own_baseline(self):
        """What this change of the program does to the peaks of the sample jobs; tests/gate/scenarios.yaml says how to renew."""
        done = run("check", TESTS / "gate" / "scenarios.yaml", "--baseline", TESTS / "gate" / "baseline.json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("shrunk", done.stdout)  # what was won is kept


if __name__ == "__main__":
    unittest.main()
