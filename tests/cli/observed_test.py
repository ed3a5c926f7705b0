#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--observed, from outside: one measured microbatch takes the place of a job's network."""

import csv
import json
import os
import pathlib
import shlex
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["TIDEMARK_PROGRAM"]
JOBS = pathlib.Path(__file__).resolve().parents[1] / "jobs"
JOB = JOBS / "resnet18-cifar10.yaml"

SAMPLES = pathlib.Path(__file__).resolve().parents[1] / "traces/samples"

SMALL = """
network: {name: small, layers: 2, hidden: 64, ffn: 176, heads: 4, vocabulary: 512}
machine: cpu
sequence_length: 64
micro_batch_size: 2
accumulation_steps: 1
strategy: ddp-last
precision: {params: fp32, gradients: fp32, reduce: fp32, accumulate: fp32, optimizer: fp32}
"""


def run(*arguments, code=0):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=240)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def predict(*arguments):
    return json.loads(run("predict", *arguments, "--format", "json", "--exit-zero").stdout)


class Observed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.trace = cls.folder / "one.trace"
        predict(JOB, "--set", "accumulation_steps=1", "--set", "layout.dp=1", "--trace", cls.trace)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def test_a_job_without_a_network_has_the_observed_one(self):
        text = "\n".join(line for line in JOB.read_text().splitlines()
                         if not line.startswith(("network:", "  name:", "  table:", "    - ")))
        job = self.write("bare.yaml", text)
        self.assertIn("no network", run("predict", job, code=2).stderr)
        for strategy in ("ddp-every", "fsdp2-scatter-each", "deepspeed-zero2"):
            with self.subTest(strategy=strategy):
                change = ("--set", f"strategy={strategy}")
                observed = predict(job, "--observed", self.trace, *change)
                self.assertEqual(observed["peak"]["by_category"], predict(JOB, *change)["peak"]["by_category"])

    def test_the_report_says_what_is_observed_and_of_which_file(self):
        report = predict(JOB, "--observed", self.trace)
        first = report["provenance"]["observed"][0]
        self.assertIn(f"10 blocks of microbatch 0 in {self.trace}", first)
        self.assertIn("taken as 128 samples (micro_batch_size of the job's file; --observed-batch says another)", first)
        self.assertTrue(any("11,173,962 trained parameters" in line for line in report["provenance"]["observed"]))
        text = run("predict", JOB, "--observed", self.trace).stdout
        self.assertTrue(text.startswith("observed network, ddp-last, 4 ranks"), text)
        self.assertIn("observed", text[text.index("Where the numbers come from"):])
        self.assertEqual(predict(JOB)["provenance"]["observed"], [])

    def test_the_batch_of_the_measured_microbatch_can_be_said(self):
        twice = predict(JOB, "--observed", self.trace, "--observed-batch", 128, "--set", "micro_batch_size=256")
        self.assertEqual(twice["peak"]["by_category"], predict(JOB, "--set", "micro_batch_size=256")["peak"]["by_category"])
        self.assertTrue(any("scaled to 256 samples" in line for line in twice["provenance"]["observed"]))

    def test_what_was_measured_is_the_batch_of_the_file_and_set_asks_for_another(self):
        asked = ("--set", "micro_batch_size=256")
        self.assertEqual(predict(JOB, "--observed", self.trace, *asked)["peak"]["by_category"],
                         predict(JOB, *asked)["peak"]["by_category"])

    def test_every_verb_that_prices_a_job_takes_what_was_observed(self):
        observed = ("--observed", self.trace)
        wanted = {(strategy, steps): predict(JOB, *observed, "--set", f"strategy={strategy}", "--set", f"accumulation_steps={steps}")
                  for strategy in ("ddp-last", "deepspeed-zero2") for steps in (1, 4)}
        sweep = json.loads(run("sweep", JOB, *observed, "--vary", "strategy=ddp-last,deepspeed-zero2",
                               "--vary", "accumulation_steps=1,4", "--format", "json").stdout)
        self.assertEqual({(row["strategy"], row["accumulation_steps"]): row["allocated_bytes"]
                          for row in sweep["rows"]},
                         {key: prediction["peak"]["allocated_bytes"] for key, prediction in wanted.items()})
        throughput = next(iter(wanted.values()))["throughput"]  # a trace tells no FLOPs, which is no zero
        self.assertEqual([throughput[key] for key in ("model_tflops_per_gpu", "mfu", "hfu")], [None, None, None])
        run("sweep", JOB, *observed, "--vary", "accumulation_steps=1,4", "--out", self.folder / "rows.csv")
        with open(self.folder / "rows.csv", encoding="utf-8", newline="") as rows:
            self.assertEqual({row["mfu"] for row in csv.DictReader(rows)}, {""})
        for verb in ("solve", "advise"):
            with self.subTest(verb=verb):
                done = run(verb, JOB, *observed, "--observed-batch", 64, "--format", "json")
                self.assertIn("observed: 10 blocks", done.stderr)
                commands = [option["command"] for options in json.loads(done.stdout).values()
                            if isinstance(options, list) for option in options if "command" in option]
                self.assertTrue(commands)
                for command in commands:
                    self.assertIn(f"--observed {self.trace} --observed-batch 64", command)
        explained = json.loads(run("explain", JOB, *observed, "--against", "accumulation_steps=1", "--format", "json").stdout)
        self.assertEqual(explained["after"]["peak"]["allocated_bytes"], wanted["ddp-last", 1]["peak"]["allocated_bytes"])
        self.assertIn("role", run("program", JOB, *observed).stdout)

    def test_frozen_weights_are_counted_when_they_are_told(self):
        job = self.write("frozen.yaml", SMALL + "optimizer: adamw\n")
        trained = ("--set", "network.trainable=['layer*.wq']")
        whole = predict(job, *trained, "--trace", self.folder / "frozen.trace")
        observed = ("--observed", self.folder / "frozen.trace")
        silent = predict(job, *observed)
        self.assertIn("observed-without-the-rest", [lint["id"] for lint in silent["lints"]])
        missing = whole["peak"]["by_category"]["parameter"] - silent["peak"]["by_category"]["parameter"]
        self.assertGreater(missing, 0)
        told = predict(job, *observed, "--observed-frozen", missing // 4)
        self.assertEqual(told["peak"]["allocated_bytes"], whole["peak"]["allocated_bytes"])
        self.assertEqual(told["peak"]["by_category"]["parameter"], whole["peak"]["by_category"]["parameter"])
        self.assertNotIn("observed-without-the-rest", [lint["id"] for lint in told["lints"]])
        self.assertIn("requires --observed", run("predict", job, "--observed-frozen", 3, code=2).stderr)

    def test_printed_commands_have_the_batch_that_was_taken(self):
        silent = self.write("silent.yaml", "\n".join(line for line in JOB.read_text().splitlines()
                                                     if not line.startswith("micro_batch_size")))
        job = (silent, "--observed", self.trace)
        self.assertIn("--observed-batch N says it", run("predict", *job, code=2).stderr)
        solved = json.loads(run("solve", *job, "--set", "micro_batch_size=128", "--format", "json", "--exit-zero").stdout)
        for option in solved["options"]:
            program, verb, *arguments = shlex.split(option["command"])
            found = json.loads(run(verb, *arguments, "--format", "json", "--exit-zero").stdout)
            self.assertEqual(found["peak"]["allocated_bytes"], option["allocated_bytes"], option["command"])

    def test_a_job_may_come_through_a_pipe(self):
        done = subprocess.run([PROGRAM, "predict", "/dev/stdin", "--observed", self.trace, "--format", "json", "--exit-zero"],
                              input=JOB.read_text(), capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["peak"], predict(JOB, "--observed", self.trace)["peak"])

    def test_another_network_is_not_the_observed_one(self):
        gpt2 = JOBS / "gpt2-ddp.yaml"
        for against in (gpt2, "network=gpt2"):
            with self.subTest(against=against):
                explained = json.loads(run("explain", JOB, "--observed", self.trace, "--against", against, "--format", "json").stdout)
                self.assertNotEqual(explained["after"]["peak"]["allocated_bytes"], explained["before"]["peak"]["allocated_bytes"])
        self.assertEqual(json.loads(run("explain", JOB, "--observed", self.trace, "--against", gpt2, "--format", "json").stdout)
                         ["after"]["peak"]["allocated_bytes"], predict(gpt2)["peak"]["allocated_bytes"])
        self.assertIn("leave one of them out", run("predict", JOB, "--observed", self.trace, "--set", "network=gpt2", code=2).stderr)

    def test_a_length_that_was_not_measured_changes_nothing_and_says_so(self):
        same = predict(JOB, "--observed", self.trace)
        self.assertNotIn("option-without-effect", [lint["id"] for lint in same["lints"]])
        longer = predict(JOB, "--observed", self.trace, "--set", "sequence_length=7")
        self.assertEqual(longer["peak"], same["peak"])
        self.assertIn("sequence_length", " ".join(lint["message"] for lint in longer["lints"]))

    def test_job_prints_the_network_for_every_other_verb(self):
        done = run("job", JOB, "--observed", self.trace)
        self.assertIn("observed: 10 blocks of microbatch 0", done.stderr)
        self.assertIn(f"table_samples: 128  # observed in {self.trace}", done.stdout)
        job = self.write("resolved.yaml", done.stdout)
        self.assertEqual(run("job", job).stdout.count("saved_bytes"), 10)
        wanted = predict(JOB, "--observed", self.trace)
        found = predict(job)
        self.assertEqual(found["peak"], wanted["peak"])
        self.assertEqual(found["time"], wanted["time"])
        sweep = json.loads(run("sweep", job, "--vary", "accumulation_steps=1,4", "--format", "json").stdout)
        self.assertIn(wanted["peak"]["allocated_bytes"], [row["allocated_bytes"] for row in sweep["rows"]])

    def test_a_measured_microbatch_tells_what_other_steps_of_the_network_measure(self):
        job = self.write("small.yaml", SMALL)
        trace = self.folder / "measured.trace"
        run("run", job, "--steps", 2, "--trace", trace)
        for change in (["accumulation_steps=3"], ["accumulation_steps=3", "strategy=ddp-every"],
                       ["accumulation_steps=2", "strategy=single-backward"]):
            with self.subTest(change=change):
                sets = [word for one in change for word in ("--set", one)]
                measured = json.loads(run("run", job, *sets, "--format", "json").stdout)["peak"]["allocated_bytes"]
                observed = predict(job, "--observed", trace, "--step", "first", *sets)["peak"]["allocated_bytes"]
                self.assertEqual(observed, measured)

    def test_one_recorded_microbatch_of_a_residual_network_tells_the_peak_of_four(self):
        """tests/traces/samples/README.md says what was recorded. A loop on one process has no buckets, which all ways
        of data parallelism have; and what has no gradient (running statistics of batch norms) is not observed."""
        predicted = predict(SAMPLES / "torch-2.15-cpu-resnet.yaml", "--observed", SAMPLES / "torch-2.15-cpu-resnet-1.json.gz")["peak"]
        report = json.loads(run("report", SAMPLES / "torch-2.15-cpu-resnet-4.json.gz", "--format", "json").stdout)
        channels = 16 + 4 * 16 + 5 * 32 + 5 * 64  # of 15 batch norms: a mean and a variance each, and a counter
        without_gradients = 8 * channels + 15 * 8
        measured = report["traces"][0]["peak"]["allocated_bytes"]
        self.assertEqual(measured, 11_532_536)
        self.assertEqual(predicted["allocated_bytes"] - predicted["by_category"]["bucket"] + without_gradients, measured)

    def test_one_recorded_microbatch_of_a_decoder_tells_the_peak_of_the_step_that_it_is_of(self):
        of_residual = (SAMPLES / "torch-2.15-cpu-resnet.yaml").read_text()
        job = self.write("decoder.yaml", of_residual.replace("size: 8", "size: 2").replace("sgd-momentum", "adamw"))
        sample = SAMPLES / "torch-1.13-cpu-decoder.json.gz"
        predicted = predict(job, "--observed", sample)["peak"]
        report = json.loads(run("report", sample, "--format", "json").stdout)
        measured = report["traces"][0]["peak"]["allocated_bytes"]
        step_counters = 15 * 4  # Adam's, an fp32 number for each of 15 parameters: embedding, head, norm, 2 layers of 6
        self.assertEqual(measured, 5_349_972)
        self.assertEqual(predicted["allocated_bytes"] - predicted["by_category"]["bucket"] + step_counters, measured)

    def test_what_does_not_go_is_one_sentence(self):
        def refusal(*arguments):
            return run("predict", *arguments, code=2).stderr

        self.assertIn("layout.tp of 1 for a table network", refusal(JOB, "--observed", self.trace, "--set", "layout.tp=2"))
        self.assertIn("nowhere.trace", refusal(JOB, "--observed", "nowhere.trace"))
        self.assertIn("--observed", refusal(JOB, "--observed-batch", 4))
        self.assertIn("is read and would be overwritten", refusal(JOB, "--observed", self.trace, "--trace", self.trace))
        sharded = self.folder / "sharded.trace"
        predict(JOB, "--set", "strategy=fsdp2-scatter-each", "--trace", sharded)
        self.assertIn("sharded.trace", refusal(JOB, "--observed", sharded))


if __name__ == "__main__":
    unittest.main()
