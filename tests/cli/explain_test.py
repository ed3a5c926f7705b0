# SPDX-License-Identifier: Apache-2.0
"""The verb explain, from outside: the four questions about accumulation that are asked most, and the manners of a verb.

Sizes are counted by hand from Llama-3 8B: hidden 4096, feed-forward 14336, 32 layers, vocabulary 128,256, keys and values
of width 1024, embedding and head untied."""

import json
import pathlib
import re
import tempfile
import unittest

from tidemark import run

JOB = pathlib.Path(__file__).resolve().parents[1] / "jobs" / "llama-3-8b-fsdp2.yaml"

EMBEDDING = 128256 * 4096
LAYER = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
PARAMETERS = 2 * EMBEDDING + 32 * LAYER + 4096  # 8,030,261,248, as published


def sets(**keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


def explain(*arguments, job=JOB):
    done = run("explain", job, *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def family(explanation, name):
    return next(tensor for tensor in explanation["tensors"] if tensor["name"] == name)


def first_paragraph(text):
    return next(" ".join(part.split()) for part in text.split("\n\n") if part.startswith(("With ", "From ", "Between ")))


class Explain(unittest.TestCase):
    def assert_adds_up(self, explanation):
        tensors = explanation["tensors"]
        self.assertEqual(sum(t["bytes_after"] - t["bytes_before"] for t in tensors if t["in_peak"]),
                         explanation["peak_delta_bytes"])
        self.assertTrue(all(t["bytes_before"] == t["bytes_after"] == 0 for t in tensors if not t["in_peak"]))
        self.assertEqual(sum(part["delta_ns"] for part in explanation["time"]), explanation["step_delta_ns"])
        for side in ("before", "after"):
            self.assertEqual(sum(t[f"bytes_{side}"] for t in tensors), explanation[side]["peak"]["allocated_bytes"])
            self.assertEqual(sum(part[f"{side}_ns"] for part in explanation["time"]), explanation[side]["step_ns"])
            for instant in explanation[side]["instants"]:
                if instant["name"] != "optimizer, first step":
                    self.assertLessEqual(instant["bytes"], explanation[side]["peak"]["allocated_bytes"])
                self.assertEqual(sum(instant["by_category"].values()), instant["bytes"])

    def accumulating(self, **keys):
        explanation = explain(*sets(accumulation_steps=1, **keys), "--against", "accumulation_steps=4")
        self.assert_adds_up(explanation)
        return explanation

    def test_the_sizes_are_those_of_the_published_model(self):
        self.assertEqual(PARAMETERS, 8_030_261_248)

    def test_deferring_under_fsdp2_keeps_all_gradients_whole_in_fp32(self):
        """From the second microbatch on a whole fp32 sum of all gradients waits: 4 bytes a parameter. At the peak, the
        loss of the second microbatch, all of it is there; with one microbatch there is none."""
        explanation = self.accumulating(strategy="fsdp2-defer")
        self.assertEqual(explanation["peak_delta_bytes"], 4 * PARAMETERS)
        down = family(explanation, "accumulated gradient of layer.down")
        self.assertEqual((down["category"], down["dtype"], down["sharding"]), ("accumulator", "fp32", "whole"))
        self.assertEqual((down["bytes_before"], down["bytes_after"]), (0, 4 * 32 * 4096 * 14336))
        self.assertEqual((down["born"], down["dies"]), ("backward 0", "backward 3"))
        self.assertEqual([explanation[side]["fits"] for side in ("before", "after")], [True, False])
        words = explanation["summary"]
        for part in ("accumulation_steps 4 instead of 1", "29.9 GiB more memory", "no longer fits",
                     "the running sum of gradients, 29.9 GiB in fp32, whole on every GPU, alive from the backward pass of "
                     "the first microbatch to the backward pass of the last microbatch",
                     "at the fullest moment before: none", "for each microbatch instead of"):
            self.assertIn(part, words)

    def test_a_deepspeed_pipeline_holds_the_activations_of_as_many_microbatches_as_it_has_stages(self):
        """DeepSpeed issue 4602: in its pipeline the accumulation steps are the pipeline's microbatches. The first of 4
        stages starts min(4, M) of them before the first one's backward pass. A layer keeps the two halves of its
        feed-forward network, 8192 x 14336 in bf16 each, for each."""
        explanation = self.accumulating(strategy="deepspeed-zero1", layout__pp=4, layout__dp=2)
        gate = family(explanation, "layer.gate")
        one = 8 * 8192 * 14336 * 2
        self.assertEqual((gate["category"], gate["dtype"], gate["sharding"]), ("activation", "bf16", "own"))
        self.assertEqual((gate["bytes_before"], gate["bytes_after"]), (one, 4 * one))
        self.assertEqual((gate["born"], gate["dies"]), ("forward 0", "backward 3"))
        self.assertEqual([explanation[side]["peak"]["role"] for side in ("before", "after")], ["stage 3", "stage 0"])
        words = explanation["summary"]
        for part in ("go through the pipeline", "What is added: activations", "those of 4 microbatches at once",
                     "alive from the forward pass of the first microbatch", "those of 1)", "on the GPUs of stage 0"):
            self.assertIn(part, words)

    def test_the_jax_stash_keeps_a_whole_set_of_gradients_for_each_microbatch(self):
        """marin issue 6532: the weight gradients of each microbatch are stacked, and summed at the end. The peak is the
        loss of the last microbatch: those of the three before are there, 2 bytes a parameter each; in the end four."""
        explanation = self.accumulating(strategy="jax-scan-stacked")
        self.assertEqual(explanation["peak_delta_bytes"], 3 * 2 * PARAMETERS)
        down = family(explanation, "stacked gradient of layer.down")
        one = 2 * 32 * 4096 * 14336
        self.assertEqual((down["dtype"], down["sharding"], down["bytes_before"], down["bytes_after"]),
                         ("bf16", "whole", 0, 3 * one))
        self.assertEqual((down["most_bytes_before"], down["most_bytes_after"]), (one, 4 * one))
        words = explanation["summary"]
        for part in ("44.9 GiB more memory", "gradients, 44.9 GiB in bf16, whole on every GPU, those of 3 microbatches at once",
                     "from the backward pass of the first microbatch", "To try: keep a running sum of gradients instead"):
            self.assertIn(part, words)

    def test_bf16_parameters_with_fp32_accumulation_keep_both_a_gradient_and_a_sum(self):
        """DeepSpeed's BF16_Optimizer adds bf16 gradients (2 bytes) into a flat fp32 sum (4 bytes) that is always there.
        With one microbatch no gradient is there yet where memory is fullest, later on all are."""
        explanation = self.accumulating(strategy="deepspeed-bf16")
        self.assertEqual(explanation["peak_delta_bytes"], 2 * PARAMETERS)
        flat = family(explanation, "flat gradient")
        self.assertEqual((flat["category"], flat["dtype"], flat["sharding"]), ("accumulator", "fp32", "whole"))
        self.assertEqual(flat["bytes_before"], flat["bytes_after"])
        self.assertEqual(flat["bytes_after"], 4 * PARAMETERS)  # divisible by 2 x 8: nothing is padded
        words = explanation["summary"]
        for part in ("gradients, 15.0 GiB in bf16, whole on every GPU, alive from the backward pass of the first microbatch",
                     "There in both: the running sum of gradients, 29.9 GiB in fp32, whole on every GPU, there all the time"):
            self.assertIn(part, words)

    def test_the_dtype_of_the_accumulator_is_the_reason_why_megatrons_gradient_is_fp32(self):
        """Megatron-LM issue 502. The buffer takes 2 more bytes a parameter; the fp32 copy of each rank's part that a bf16
        buffer needs lives in the optimizer's step only, not at the peak."""
        bf16 = {"precision__accumulate": "bf16", "precision__reduce": "bf16"}
        explanation = explain(*sets(strategy="megatron-dist-opt", **bf16), "--against", "precision.accumulate=fp32",
                              "--against", "precision.reduce=fp32")
        self.assert_adds_up(explanation)
        self.assertEqual(explanation["peak_delta_bytes"], 2 * PARAMETERS)
        self.assertEqual(family(explanation, "main gradient of layer.down")["dtype"], "bf16 -> fp32")
        self.assertIn("the running sum of gradients, 29.9 GiB in fp32, whole on every GPU, there all the time (at the fullest "
                      "moment before: 15.0 GiB in bf16, whole on every GPU)", explanation["summary"])

    def test_a_paragraph_in_words_comes_first_and_knows_no_jargon(self):
        for keys in ({"strategy": "fsdp2-defer"}, {"strategy": "jax-scan-stacked"}, {"strategy": "deepspeed-bf16"},
                     {"strategy": "deepspeed-zero1", "layout__pp": 2, "layout__dp": 4}):
            done = run("explain", JOB, *sets(accumulation_steps=1, **keys), "--against", "accumulation_steps=4")
            self.assertEqual(done.returncode, 0, done.stderr)
            words = first_paragraph(done.stdout)
            self.assertLess(done.stdout.index("With accumulation_steps"), done.stdout.index("Tensor by tensor"))
            self.assertRegex(words, r"more memory: [\d.]+ GiB .* instead of [\d.]+ GiB")
            self.assertRegex(words, r"(still fits|no longer fits|does not fit, as before) \(up to")
            self.assertGreaterEqual(len(re.findall(r"[.] [A-Z]", words)), 2, words)
            for jargon in ("dp", "accumulator", "optimizer_step", "tp_gather", "role", "backward 0"):
                self.assertNotIn(f" {jargon} ", words)

    def test_what_is_suggested_works_when_it_is_followed(self):
        explanation = self.accumulating(strategy="fsdp2-defer")
        suggestion = explanation["suggestion"]
        self.assertIsNotNone(suggestion)
        predicted = run("predict", JOB, *sets(strategy="fsdp2-defer", accumulation_steps=4), "--set", suggestion["change"],
                        "--format", "json", "--exit-zero")
        predicted = json.loads(predicted.stdout)
        self.assertEqual((predicted["peak"]["allocated_bytes"], predicted["time"]["step_ns"]),
                         (suggestion["allocated_bytes"], suggestion["step_ns"]))
        self.assertLess(suggestion["allocated_bytes"], explanation["after"]["peak"]["allocated_bytes"])
        self.assertIn(f"To try: {suggestion['change']}", explanation["summary"])

    def test_a_job_against_itself_differs_in_nothing(self):
        for against in (str(JOB), "accumulation_steps=4"):
            explanation = explain("--against", against)
            self.assert_adds_up(explanation)
            self.assertEqual((explanation["peak_delta_bytes"], explanation["step_delta_ns"], explanation["changes"]),
                             (0, 0, []))
            self.assertTrue(all(t["bytes_before"] == t["bytes_after"] for t in explanation["tensors"]))
            self.assertTrue(all(part["delta_ns"] == 0 for part in explanation["time"]))
            self.assertIn("Between two equal jobs", explanation["summary"])

    def test_many_microbatches_are_counted_in_words(self):
        """The sum of gradients lives from the first of 22 to the last; of a stash 21 sets are there in the last one's
        loss."""
        words = explain(*sets(strategy="fsdp2-defer", accumulation_steps=1), "--against", "accumulation_steps=22")["summary"]
        self.assertIn("from the backward pass of the first microbatch to the backward pass of the last microbatch", words)
        words = explain(*sets(strategy="jax-scan-stacked", accumulation_steps=1), "--against",
                        "accumulation_steps=22")["summary"]
        self.assertIn("those of 21 microbatches at once", words)

    def test_a_second_file_and_values_on_top_of_it_are_the_second_job(self):
        with tempfile.TemporaryDirectory() as folder:
            other = pathlib.Path(folder) / "other.yaml"
            other.write_text(JOB.read_text().replace("fsdp2-scatter-each", "fsdp2-defer"))
            one = explain("--against", other)
            same = explain("--against", "strategy=fsdp2-defer")
            for key in ("peak_delta_bytes", "step_delta_ns", "tensors", "time", "changes"):
                self.assertEqual(one[key], same[key], key)
            more = explain("--set", "accumulation_steps=2", "--against", other, "--against", "accumulation_steps=8")
            self.assertEqual((more["before"]["microbatches"], more["after"]["microbatches"]), (2, 8))
            self.assertEqual(run("explain", JOB, "--against", other, "--against", JOB).returncode, 2)
            named = pathlib.Path(folder, "layout.dp=8.yaml")
            named.write_text(pathlib.Path(other).read_text())
            self.assertEqual(explain("--against", named)["peak_delta_bytes"], one["peak_delta_bytes"])

    def test_every_key_is_told_in_words(self):
        for against in ("sync.bucket_bytes=1 MiB", "packing.qkv=packed", "network.layers=16", "loss=chunked"):
            words = explain("--set", "strategy=ddp-last", "--against", against)["summary"]
            self.assertRegex(words, rf"^With {against.split('=')[0]} .* instead of [^(]* \([^)]+\)")

    def test_what_reads_alike_is_told_by_its_difference(self):
        """The norms of clipping are 4 bytes a tensor, of some 300, in the optimizer's step: far from the peak, and a step
        longer by one pass over the gradients."""
        words = explain("--against", "optimizer_step.clip_norm=1", "--against", "sync.overlap=true")["summary"]
        self.assertNotRegex(words, r"([\d.]+ [a-zA-Z]+) instead of \1\b")
        words = explain("--set", "sequence_length=4096", "--against", "sequence_length=4097")["summary"]
        self.assertNotRegex(words, r"([\d.]+ [a-zA-Z]+) instead of \1\b")
        self.assertRegex(words, r"needs [\d.]+ MiB more memory: [\d.]+ GiB for tensors at its fullest moment, to three digits "
                                "as before")

    def test_a_mean_length_is_told_against_the_length_of_all(self):
        uneven = explain("--set", "sequence_length=4096", "--against", "sequence_length.max=4096", "--against",
                         "sequence_length.mean=2048")["summary"]
        self.assertIn("sequence_length.mean 2048 instead of 4096 (how many tokens a sequence has on average", uneven)
        self.assertNotIn("no value", uneven)
        even = explain("--set", "sequence_length={max: 4096, mean: 2048}", "--against", "sequence_length=1024")["summary"]
        self.assertIn("sequence_length 1024 instead of max 4096, mean 2048", even)

    def test_only_advice_about_memory_is_repeated_as_something_to_try(self):
        words = explain("--set", "strategy=ddp-every", *sets(accumulation_steps=1), "--against", "accumulation_steps=4")
        self.assertIn("sync-every-microbatch", [lint["id"] for lint in words["after"]["lints"]])
        self.assertNotIn("last microbatch only", words["summary"])
        words = explain("--set", "strategy=ddp-last", "--against", "strategy=single-backward")["summary"]
        self.assertIn("To try: give every microbatch its own backward pass", words)

    def test_each_side_is_what_predict_says_of_it(self):
        explanation = explain("--against", "strategy=ddp-last")
        for side, keys in (("before", {}), ("after", {"strategy": "ddp-last"})):
            predicted = json.loads(run("predict", JOB, *sets(**keys), "--format", "json", "--exit-zero").stdout)
            for key in ("allocated_bytes", "by_category", "device_bytes", "live"):
                self.assertEqual(explanation[side]["peak"][key], predicted["peak"][key], (side, key))
            self.assertEqual(explanation[side]["step_ns"], predicted["time"]["step_ns"])
            named = {instant["name"]: instant for instant in explanation[side]["instants"]}
            for instant in predicted["instants"]:
                self.assertEqual(named[instant["name"]], instant)

    def test_the_named_instants_of_a_step_are_there_and_those_that_a_strategy_lacks_are_not(self):
        explanation = explain("--set", "strategy=deepspeed-zero1", "--against", "strategy=single-backward")
        names = [[instant["name"] for instant in explanation[side]["instants"]] for side in ("before", "after")]
        usual = {"end of forward", "loss", "start of backward", "window end", "reduce", "optimizer, first step",
                 "optimizer, later steps"}
        self.assertLessEqual(usual | {"gather"}, set(names[0]))
        self.assertLessEqual(usual, set(names[1]))
        self.assertNotIn("gather", names[1])  # every rank updates whole weights
        self.assertNotIn("clip", names[0])
        clips = explain("--set", "strategy=deepspeed-zero1", "--set", "optimizer_step.clip_norm=1.0", "--against",
                        "accumulation_steps=2")
        for side in ("before", "after"):
            instants = {instant["name"]: instant for instant in clips[side]["instants"]}
            self.assertIn("gradient norms", [live["name"] for live in instants["clip"]["live"]])
            self.assertEqual(instants["clip"]["in"], "optimizer")

    def test_a_page_has_both_memory_curves(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "why.html"
            done = run("explain", JOB, "--against", "accumulation_steps=2", "--html", page)
            self.assertEqual(done.returncode, 0, done.stderr)
            text = page.read_text()
            self.assertIn('data-label="before"', text)
            self.assertIn('data-label="after"', text)
            self.assertIn("With accumulation_steps 2 instead of 4", text)

    def test_markdown_has_the_paragraph_and_the_tables(self):
        done = run("explain", JOB, "--against", "accumulation_steps=2", "--format", "markdown")
        self.assertEqual(done.returncode, 0, done.stderr)
        for part in ("2 instead of 4 (how many microbatches", "## Tensor by tensor", "## Named instants after"):
            self.assertIn(part, done.stdout)

    def test_bad_input_is_refused_in_one_sentence(self):
        for arguments, says in (([], "--against is required"), (["--against", "nofile.yaml"], "nofile.yaml"),
                                (["--against", "layout.dp=banana"], "expected a whole number"),
                                (["--against", "strategy=deepspeed-zero2", "--against", "sync.when=last"], "--against")):
            done = run("explain", JOB, *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertTrue(done.stderr.startswith("tidemark: error: "), done.stderr)
            self.assertIn(says, done.stderr)
            self.assertIn("\nhint: ", done.stderr)

    def test_what_is_cut_into_other_parts_is_one_thing_on_all_ranks_together(self):
        text = run("explain", JOB, "--set", "sequence_length=512", "--against", "layout.tp=2").stdout.replace("\n", " ")
        paragraph = text[text.index("With layout.tp"):text.index("Where the jobs differ")]
        shard = 4 * PARAMETERS / 8 / 2**30  # fp32 over 8 ranks, then over 16
        self.assertIn(f"gradients, {shard:.2f} GiB in fp32, 1/8 on each GPU", paragraph)
        self.assertIn(f"{shard / 2:.2f} GiB in fp32, 1/16 on each GPU", paragraph)
        self.assertNotIn("none", paragraph)
        self.assertIn("for the same tokens", paragraph)

    def test_a_cause_is_told_for_the_time_that_it_changes_in_that_direction(self):
        job = JOB.parent / "llama-3-70b-tp8-pp4.yaml"
        text = run("explain", job, "--against", "recompute.policy=full").stdout.replace("\n", " ")
        time = {row["cause"]: row["delta_ns"] for row in explain("--against", "recompute.policy=full", job=job)["time"]}
        told = text[text.index("most of the difference in"):text.index("Where the jobs differ")]
        self.assertIn("recompute (", told)
        self.assertGreater(time["recompute"], 0)

    def test_the_role_that_ends_a_step_is_named_where_it_is_another_one(self):
        """The first stage's backward pass is the last one; with few tokens the update of most layers outlasts it."""
        job = JOB.parent / "llama-3-70b-tp8-pp4.yaml"
        few = sets(sequence_length=64, accumulation_steps=4)
        large = ("--against", "layout.layers_per_stage=[1, 1, 1, 77]")
        explanation = explain(*few, *large, job=job)
        self.assertEqual([explanation[side]["last_role"] for side in ("before", "after")], ["stage 0", "stage 3"])
        self.assertIn("for the same tokens. It ends on stage 3; before, on stage 0: ", explanation["summary"])
        text = " ".join(run("explain", job, *few, *large).stdout.split())
        self.assertIn("(on stage 3, the last to finish; before, on stage 0)", text)
        for stages, where in ((1, "the only role, the last to finish; before, on stage 0"),
                              (2, "stage 0, the last role to finish")):
            text = " ".join(run("explain", job, "--against", f"layout.pp={stages}", "--against", f"layout.dp={4 // stages}")
                            .stdout.split())
            self.assertIn(f"Time of a step by cause (on {where.replace('last role', 'last')})", text)
        same = explain("--against", "recompute.policy=full", job=job)
        self.assertEqual([same[side]["last_role"] for side in ("before", "after")], ["stage 0", "stage 0"])
        self.assertIn("for the same tokens, most of the difference in ", same["summary"])
        for case in (few, [*few, "--set", large[1]]):
            predicted = json.loads(run("predict", job, *case, "--format", "json").stdout)
            self.assertEqual(predicted["last_role"], explanation["before" if case is few else "after"]["last_role"])


if __name__ == "__main__":
    unittest.main()
