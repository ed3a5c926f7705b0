#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verb advise, from outside: every option is what its own command line predicts, in the order that is promised."""

import functools
import json
import pathlib
import shlex
import tempfile
import unittest

from tidemark import run

JOBS = pathlib.Path(__file__).resolve().parents[1] / "jobs"
JOB = JOBS / "llama-3-8b-fsdp2.yaml"
COUNTS = ("refused", "wrong", "no_effect", "worse", "left_out")


@functools.lru_cache(maxsize=None)
def advise(*arguments, job=JOB):
    done = run("advise", job, *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def predicted(command, *more):
    words = shlex.split(command)
    assert words[0] == "tidemark"
    return json.loads(run(*words[1:], *more, "--format", "json", "--exit-zero").stdout)


def option(advice, change):
    return next(option for option in advice["options"] if option["change"] == change)


class Advise(unittest.TestCase):
    def assert_in_order(self, advice):
        options = advice["options"]
        saving = [each for each in options if each["kind"] == "saves_memory"]
        faster = [each for each in options if each["kind"] == "faster"]
        self.assertEqual(options, saving + faster)
        free = [each for each in saving if each["lost_ns"] <= 0]
        paid = [each for each in saving if each["lost_ns"] > 0]
        self.assertEqual(saving, free + paid)
        self.assertEqual(free, sorted(free, key=lambda each: -each["saved_bytes"]))
        rates = [each["saved_bytes"] / each["lost_ns"] for each in paid]
        self.assertEqual(rates, sorted(rates, reverse=True))
        self.assertTrue(all(each["saved_bytes"] > 0 or (each["fits"] and not advice["now"]["fits"]) for each in saving))
        self.assertTrue(all(each["saved_bytes"] <= 0 and each["lost_ns"] < 0 for each in faster))

    def test_every_option_is_what_its_command_predicts(self):
        for name in ("llama-3-8b-fsdp2.yaml", "nanotron-tinystories-tp4.yaml"):
            advice = advise("--top", 3, job=JOBS / name)
            self.assert_in_order(advice)
            self.assertGreater(len(advice["options"]), 3)
            now = predicted(f"tidemark predict {shlex.quote(str(JOBS / name))}")
            for each in advice["options"]:
                told = predicted(each["command"])
                self.assertEqual(
                    (each["allocated_bytes"], each["step_ns"], each["fits"], each["device_high_bytes"]),
                    (told["peak"]["allocated_bytes"], told["time"]["step_ns"], told["fits"], told["peak"]["device_bytes"]["high"]),
                    each["change"])
                self.assertEqual(each["saved_bytes"], now["peak"]["allocated_bytes"] - each["allocated_bytes"])
                self.assertEqual(each["lost_ns"], each["step_ns"] - now["time"]["step_ns"])
                new = {lint["id"] for lint in told["lints"] if lint["severity"] != "note"}
                self.assertLessEqual(set(each["lints"]), new)

    def test_hiding_buckets_behind_the_backward_pass_is_not_slower_than_waiting_for_them(self):
        """GPT-2's buckets take 1.35 ms more where nothing hides them, and a fraction of it from the kernels beside them."""
        advice = advise("--top", 100, job=JOBS / "gpt2-ddp.yaml")
        self.assertNotIn("sync.overlap=false", [each["change"] for each in advice["options"]])

    def test_an_option_whose_first_steps_do_not_fit_is_said_to_be_one(self):
        """Megatron's first step makes what later steps find."""
        advice = advise("--set", "micro_batch_size=48", "--top", 100, job=JOBS / "gpt2-ddp.yaml")
        self.assertIn("first-steps-do-not-fit", option(advice, "strategy=megatron")["lints"])
        for each in filter(lambda each: each["fits"], advice["options"]):
            told = [lint["id"] for lint in predicted(each["command"])["lints"]]
            self.assertEqual("first-steps-do-not-fit" in each["lints"], "first-steps-do-not-fit" in told, each["change"])

    def test_every_change_that_was_tried_is_accounted_for(self):
        for name in ("llama-3-8b-fsdp2.yaml", "gradcache-bert-base.yaml", "resnet18-cifar10.yaml", "llama-3-70b-tp8-pp4.yaml"):
            advice = advise("--top", 100, job=JOBS / name)
            self.assert_in_order(advice)
            self.assertEqual(advice["tried"], len(advice["options"]) + sum(advice[count] for count in COUNTS), name)
            self.assertGreater(advice["refused"], 0)

    def test_recomputing_whole_layers_saves_what_it_costs_in_time(self):
        """fsdp2 with 8192 tokens keeps some 30 GiB for backward; full recomputation is one more forward pass, a third of the
        time of forward and backward."""
        full = option(advise("--top", 100, job=JOB), "recompute.policy=full")
        self.assertEqual((full["kind"], full["alters"]), ("saves_memory", None))
        self.assertGreater(full["saved_bytes"], 10 * 2**30)
        self.assertGreater(full["lost_ns"], 0)

    def test_what_alters_numbers_is_marked(self):
        advice = advise("--top", 100, job=JOB)
        for change in ("optimizer=sgd", "precision.master=none", "loss=low-precision"):
            self.assertEqual(option(advice, change)["alters"], "numbers", change)
        for change in ("loss=chunked", "recompute.policy=full", "packing.qkv=packed"):
            self.assertIsNone(option(advice, change)["alters"], change)

    def test_parts_of_a_layer_come_with_the_policy_that_looks_at_them_and_without_attention(self):
        """Whose recomputation gains nothing where a fused kernel keeps no scores."""
        part = "recompute.policy=selective recompute.attention=false recompute."
        dense = [each["change"] for each in advise("--top", 200)["options"]]
        self.assertIn(part + "feed_forward=true", dense)
        self.assertNotIn(part + "latent_heads=true", dense)  # of another kind of attention
        latent = advise("--top", 200, "--set", "network=deepseek-v2-lite", "--set", "recompute.policy=none")
        for name in ("feed_forward", "latent_heads"):
            offered = option(latent, f"{part}{name}=true")
            self.assertGreater(offered["saved_bytes"], 0)
            self.assertEqual(offered["lints"], [])

    def test_what_is_known_to_be_wrong_is_no_advice(self):
        advice = advise("--top", 100, job=JOBS / "nanotron-tinystories-tp4.yaml")
        self.assertGreaterEqual(advice["wrong"], 1)
        self.assertNotIn("pooled-unsafe", json.dumps(advice["options"]))

    def test_the_users_own_changes_and_strange_names_stay_in_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            job = pathlib.Path(folder) / "it's a job.yaml"
            job.write_text(JOB.read_text())
            advice = advise("--set", "layout.dp=4", "--set", "sequence_length={max: 4096, mean: 2048}", "--top", 1, job=job)
            for each in advice["options"]:
                words = shlex.split(each["command"])
                self.assertEqual(words[:7], ["tidemark", "predict", str(job), "--set", "layout.dp=4", "--set",
                                             "sequence_length={max: 4096, mean: 2048}"])
                told = predicted(each["command"], "--engine", "closed-form")
                self.assertEqual(each["allocated_bytes"], told["peak"]["allocated_bytes"])

    def test_memory_says_what_fits(self):
        """Weights and states alone take 8e9 x 12 / 8 bytes on each of 8 ranks: no single change leaves room in 1 GiB."""
        large, small = advise("--memory", "1TiB"), advise("--memory", "1GiB")
        self.assertTrue(large["now"]["fits"] and all(each["fits"] for each in large["options"]))
        self.assertFalse(small["now"]["fits"] or any(each["fits"] for each in small["options"]))
        self.assertEqual(large["device_memory_bytes"], 2**40)
        middle = advise("--memory", "50GiB")
        self.assertEqual({each["fits"] for each in middle["options"]}, {False, True})
        for each in middle["options"]:
            self.assertEqual(each["fits"], each["device_high_bytes"] <= 50 * 2**30)
        # Near the limit the allocator's own waste decides, which only the simulation knows.
        near = advise("--memory", "10GiB", job=JOBS / "gpt2-ddp.yaml")
        self.assertEqual({each["fits"] for each in near["options"]}, {False, True})
        for each in near["options"]:
            self.assertEqual(predicted(each["command"])["fits"], each["fits"], each["change"])
            self.assertEqual(each["engine"], "simulate")
        # What saves no tensor may save enough of the cache.
        tight = advise("--memory", "11.5GiB", job=JOBS / "gpt2-ddp.yaml")
        self.assertFalse(tight["now"]["fits"])
        segments = option(tight, "allocator.expandable_segments=true")
        self.assertEqual((segments["fits"], segments["saved_bytes"], segments["lost_ns"]), (True, 0, 0))
        # Thousands of microbatches are too many to simulate dozens of times, and it says so.
        many = advise("--set", "accumulation_steps=4000")
        self.assertEqual({each["engine"] for each in many["options"]}, {"closed-form"})
        text = " ".join(run("advise", JOB, "--set", "accumulation_steps=4000").stdout.split())
        self.assertIn("without its allocator's waste", text)
        self.assertRegex(text, "(yes|no)[?]")
        counts = (middle["saves_and_fits"], middle["saves"])
        self.assertIn("{} of {} single changes that save memory make it fit".format(*counts),
                      run("advise", JOB, "--memory", "50GiB", "--top", "1").stdout)

    def test_top_keeps_the_first(self):
        every, few = advise("--top", 100, job=JOB), advise("--top", 2)
        self.assertEqual(every["left_out"], 0)
        for kind in ("saves_memory", "faster"):
            for alters in (None, "numbers"):
                pick = lambda advice: [each for each in advice["options"] if (each["kind"], each["alters"]) == (kind, alters)]
                self.assertEqual(pick(few), pick(every)[:2])

    def test_text_has_each_command_whole(self):
        done = run("advise", JOB, "--top", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        for each in advise("--top", 2)["options"]:
            self.assertIn("    " + each["command"] + "\n", done.stdout)
        self.assertIn("`tidemark predict", run("advise", JOBS / "resnet18-cifar10.yaml", "--format", "markdown").stdout)

    def test_bad_input_is_refused_in_one_sentence(self):
        for arguments, says in ((["--memory", "lots"], "--memory"), (["--memory", "80"], "is no device"),
                                (["--top", "0"], "--top"), (["--set", "layout.dp=banana"], "expected a whole number")):
            done = run("advise", JOB, *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertTrue(done.stderr.startswith("tidemark: error: "), done.stderr)
            self.assertIn(says, done.stderr)
            self.assertIn("\nhint: ", done.stderr)


if __name__ == "__main__":
    unittest.main()
