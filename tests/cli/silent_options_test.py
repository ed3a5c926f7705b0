# SPDX-License-Identifier: Apache-2.0
"""Options that would have no effect say so, or are refused; a share of the device for the allocator has one everywhere."""

import json
import pathlib
import tempfile
import unittest

from tidemark import run

JOB = pathlib.Path(__file__).resolve().parents[1] / "jobs" / "gpt2-ddp.yaml"


def read(*arguments):
    done = run(*arguments, "--format", "json")
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


class SilentOptions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def assert_refused(self, sentence, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn(sentence, done.stderr)

    def test_what_is_set_is_not_varied_as_well(self):
        for said, vary in (("micro_batch_size=2", "micro_batch_size=1,4"), ("layout={dp: 8}", "layout.dp=1,2"),
                           ("machine.device_memory=50GiB", "machine=h100-sxm-80gb,a100-sxm-80gb")):
            self.assert_refused(f"--set {said} says what --vary {vary.split('=')[0]} varies",
                                "sweep", JOB, "--set", said, "--vary", vary)
        for said, vary in (("layout={dp: 8}", "micro_batch_size=1,2"), ("machine=h100-sxm-80gb", "machine.device_memory=50GiB,60GiB")):
            self.assertEqual(run("sweep", JOB, "--set", said, "--vary", vary).returncode, 0, vary)

    def test_allocators_are_not_swept_without_a_word(self):
        swept = {vary: " ".join(run("sweep", JOB, "--vary", vary).stdout.split())
                 for vary in ("allocator.kind=exact,torch-caching", "micro_batch_size=1,2")}
        self.assertEqual(["simulates no allocator" in text for text in swept.values()], [True, False], swept)

    def test_a_device_that_nothing_runs_on_is_a_mistake(self):
        scenarios, baseline = self.folder / "scenarios.yaml", self.folder / "baseline.json"
        scenarios.write_text(f"scenarios: [{{name: predicted, job: {JOB}}}]\n")
        for words in (("check",), ("baseline", "update", "--reason", "as it is")):
            self.assert_refused("--device cpu: no scenario is executed",
                                *words, scenarios, "--baseline", baseline, "--device", "cpu")
        self.assertFalse(baseline.exists())

    def test_one_allocator_is_replayed_at_a_time(self):
        trace = self.folder / "step.trace"
        self.assertEqual(run("predict", JOB, "--trace", trace).returncode, 0)
        for key in ("kind", "allocator.kind"):
            self.assert_refused("--allocator and --set kind=KIND",
                                "replay", trace, "--allocator", "arena", "--set", f"{key}=exact")


class ShareOfTheDevice(unittest.TestCase):
    def test_is_what_every_verb_asks_whether_a_job_fits_into(self):
        """Half of what the allocator holds is too little for it, however large the rest of the device is."""
        whole = read("predict", JOB)
        self.assertTrue(whole["fits"])
        share = whole["peak"]["reserved_bytes"] / whole["device_memory_bytes"]
        self.assertLess(share * 2, 1)
        for part, fits in ((share / 2, False), (share * 2, True)):
            changed = ("--set", f"allocator.memory_fraction={part:.4f}")
            predicted = read("predict", JOB, *changed)
            self.assertEqual(predicted["fits"], fits)
            self.assertEqual(predicted["peak"]["minimum_bytes"] <= predicted["device_memory_bytes"], fits)
            self.assertEqual(run("predict", JOB, *changed).returncode, 0 if fits else 1)
            self.assertEqual([row["fits"] for row in read("sweep", JOB, *changed, "--vary", "strategy=ddp-last")["rows"]], [fits])
            self.assertEqual(predicted["peak"]["device_bytes"]["high"] <= predicted["usable_memory_bytes"], fits)
            advice = read("advise", JOB, *changed)
            solution = read("solve", JOB, *changed, "--keep", "strategy", "--keep", "layout")
            self.assertEqual([advice["now"]["fits"], solution["now"]["fits"]], [fits, fits])
            rows = read("sweep", JOB, *changed, "--vary", "micro_batch_size=1,2,4,8,16")["rows"]
            for row in (advice["now"], *advice["options"], *solution["options"], *rows):
                self.assertEqual(row["fits"], row["device_high_bytes"] <= row["usable_memory_bytes"], row)
                self.assertLess(row["usable_memory_bytes"], whole["device_memory_bytes"])

    def test_is_a_limit_to_the_byte(self):
        """PyTorch lets the allocator have int(fraction x memory) bytes; what it reserves must not be more."""
        whole = read("predict", JOB)
        reserved, memory = whole["peak"]["reserved_bytes"], whole["device_memory_bytes"]
        for pages, fits in ((0, True), (-1, False)):
            part = (reserved + pages * 2**21 + 1) / memory
            self.assertEqual(read("predict", JOB, "--set", f"allocator.memory_fraction={part!r}")["fits"], fits, pages)

    def test_is_that_of_a_predictions_trace_too(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "step.trace"
            predicted = read("predict", JOB, "--set", "allocator.memory_fraction=0.1", "--trace", trace)
            told = read("report", trace)["traces"][0]
            text = run("report", trace).stdout
        for key in ("fits", "device_memory_bytes", "usable_memory_bytes"):
            self.assertEqual(told[key], predicted[key], key)
        self.assertFalse(told["fits"])
        self.assertIn("(allocator.memory_fraction leaves no more of 40.0 GiB)", " ".join(text.split()))

    def test_is_told_with_the_verdict(self):
        text = " ".join(run("predict", JOB, "--set", "allocator.memory_fraction=0.1").stdout.split())
        self.assertRegex(text, r"DOES NOT FIT on .* \(allocator.memory_fraction leaves no more of 40.0 GiB\)")
        changed = ("--set", "allocator.memory_fraction=0.05")
        for verdict, *words in ((r"none fits in what allocator.memory_fraction leaves of 40.0 GiB", "sweep", "--vary", "micro_batch_size=4,8"),
                                (r"DOES NOT FIT in .* \(allocator.memory_fraction leaves no more of 40.0 GiB\)", "advise"),
                                (r"(NOTHING FITS|FITS) in .* \(allocator.memory_fraction leaves no more of 40.0 GiB\)", "solve")):
            told = " ".join(run(words[0], JOB, *changed, *words[1:]).stdout.split())
            self.assertRegex(told, verdict)
        explained = " ".join(run("explain", JOB, "--against", "allocator.memory_fraction=0.1").stdout.split())
        self.assertRegex(explained, r"it no longer fits \(.*allocator.memory_fraction leaves no more of 40.0 GiB\)\)")


if __name__ == "__main__":
    unittest.main()
