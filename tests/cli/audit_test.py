# SPDX-License-Identifier: Apache-2.0
"""The verb audit, from outside: hazards, windows, lints, exit codes."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["TIDEMARK_PROGRAM"]

NETWORK = "network: {name: oracle, layers: 2, hidden: 1024, ffn: 2816, heads: 16, kv_heads: 4, vocabulary: 32000}\n"
REST = "machine: h100-sxm-80gb\nsequence_length: 2048\nmicro_batch_size: 2\n"
POOL = NETWORK + REST + "accumulation_steps: 2\nlayout: {dp: 4, tp: 2}\nstrategy: nanotron\nbuffers: {tp_gather: pooled-unsafe}\n"
PLAIN = NETWORK + REST + "accumulation_steps: 4\nlayout: {dp: 4}\nstrategy: ddp-last\n"

DOCUMENTED = "i % (steps - 1) == 0"  # Colossal-AI's documentation on gradient accumulation, at 7f8b16635
RIGHT = "(i + 1) % steps == 0"


def weight_gradients(microbatch, layers=(0, 1)):
    """nanotron's first pool (pull request 203, bcf405d9): in the backward pass a row-parallel linear gathers its output's
    gradient into the block that holds the input of the column-parallel linear before it, whose weight gradient is next."""
    for layer in layers:
        yield ("layer.gu_in[0][%d]" % layer, "layer.d_down_out.gather", "layer.gate_up.weight_gradient", microbatch, layer)
        yield ("layer.qkv_in[0][%d]" % layer, "layer.d_wo_out.gather", "layer.qkv.weight_gradient", microbatch, layer)


def embedding_output(microbatch):
    """The embedding's scattered output lies in the pool too, and is layer 0's residual and the input of its norm."""
    yield ("embedding.embedding_scattered", "layer.wo.scatter", "layer.residual1.forward", microbatch, 0)
    yield ("embedding.embedding_scattered", "layer.qkv_in.scatter_gradient", "layer.norm1.backward", microbatch, 0)


class Audit(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.holder.cleanup)
        cls.folder = pathlib.Path(cls.holder.name)
        for name, text in {"pool": POOL, "plain": PLAIN}.items():
            (cls.folder / f"{name}.yaml").write_text(text)

    def run_it(self, job, *arguments, verb="audit"):
        command = [PROGRAM, verb, self.folder / f"{job}.yaml", *arguments]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)

    def audit(self, job, *arguments, code):
        done = self.run_it(job, "--format", "json", *arguments)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        report = json.loads(done.stdout)
        self.assertEqual(report["schema"], "tidemark.audit/1")
        self.assertEqual(report["clean"], code == 0)
        return report

    def custom(self, steps, expression, *arguments, code):
        return self.audit("plain", "--set", "sync.when=custom", "--set", f"sync.expression={expression}",
                          "--set", f"accumulation_steps={steps}", *arguments, code=code)

    @staticmethod
    def clobbers(report):
        return sorted((row["value"], row["overwritten_by"], row["read_by"], row["microbatch"], row["layer"])
                      for row in report["hazards"])

    def test_the_first_pool_clobbers_ten_values_in_the_first_step_and_twelve_in_a_steady_one(self):
        expected = sorted([*weight_gradients(0), *weight_gradients(1), *embedding_output(1)])
        self.assertEqual(len(expected), 10)
        report = self.audit("pool", "--step", "first", code=1)
        self.assertEqual(self.clobbers(report), expected)
        # The pool has its full size from the start: microbatch 0's embedding output goes too.
        expected = sorted([*expected, *embedding_output(0)])
        for arguments in ((), ("--step", "steady")):
            report = self.audit("pool", *arguments, code=1)
            self.assertEqual(self.clobbers(report), expected)
        self.assertEqual({row["kind"] for row in report["hazards"]}, {"clobber"})
        self.assertEqual({row["buffer"] for row in report["hazards"]}, {"pool dist"})
        self.assertEqual({(row["role"], row["stage"]) for row in report["hazards"]}, {("stage 0", 0)})
        self.assertIn("wrong-gradient", {lint["id"] for lint in report["lints"]})

    def test_safe_buffers_clobber_nothing(self):
        for gather in ("fresh", "cached", "pooled", "async"):
            for step in ("first", "second", "steady"):
                report = self.audit("pool", "--set", f"buffers.tp_gather={gather}", "--step", step, code=0)
                self.assertEqual(report["hazards"], [])
                self.assertEqual([(row["microbatches"], row["gradient_factor"]) for row in report["windows"]], [([0, 1], 1)])

    def test_layers_are_counted_through_all_pipeline_stages(self):
        report = self.audit("pool", "--set", "network.layers=4", "--set", "layout.pp=2", code=1)
        rows = {(row["stage"], row["role"], row["read_by"], row["microbatch"], row["layer"]) for row in report["hazards"]}
        for microbatch in (0, 1):
            for layer in range(4):
                for read_by in ("layer.gate_up.weight_gradient", "layer.qkv.weight_gradient"):
                    self.assertIn((layer // 2, f"stage {layer // 2}", read_by, microbatch, layer), rows)
        self.assertEqual({row[4] for row in rows}, {0, 1, 2, 3})

    def test_an_ordinary_window_is_one_of_all_microbatches(self):
        for strategy in ("ddp-last", "ddp-every", "fsdp2-defer", "deepspeed-zero1", "nanotron", "megatron-dist-opt", "alpa"):
            report = self.audit("plain", "--set", f"strategy={strategy}", code=0)
            self.assertEqual([row["microbatches"] for row in report["windows"]], [[0, 1, 2, 3]], strategy)
            self.assertEqual([row["gradient_factor"] for row in report["windows"]], [1], strategy)
            self.assertEqual(report["pending"], [], strategy)

    def test_every_strategy_says_what_holds_the_buffers_that_it_keeps(self):
        for strategy, buffers in (("ddp-last", "gradient of *"), ("fsdp2-defer", "gathered *"),
                                  ("deepspeed-zero2", "averaged gradients of own part"),
                                  ("colossalai-zero1", "stored gradients *"), ("alpa", "accumulated gradient of *")):
            rows = self.audit("plain", "--set", f"strategy={strategy}", code=0)["idle"]
            self.assertIn(buffers, [row["buffers"] for row in rows])
            self.assertTrue(all(row["why"] and row["bytes"] > 0 for row in rows), strategy)
            self.assertEqual([row["bytes"] for row in rows], sorted((row["bytes"] for row in rows), reverse=True))

    def test_what_a_stage_has_sent_stays_until_its_backward_pass_and_not_with_megatron_and_alpa(self):
        for strategy, kept in (("ddp-last", True), ("megatron", False), ("alpa", False)):
            rows = self.audit("plain", "--set", f"strategy={strategy}", "--set", "network.layers=4", "--set", "layout.pp=2",
                              code=0)["idle"]
            self.assertEqual("residual" in [row["buffers"] for row in rows], kept, strategy)

    def test_the_documented_predicate_gives_the_whole_table(self):
        # Steps behind, window sizes, gradient over the window's mean: the loop divides by GA whatever the window is.
        table = {2: ([0, 1, 2, 3, 4, 5], [1] * 6, [0.5] * 6, []),
                 3: ([0, 2, 4, 6, 8], [1, 2, 2, 2, 2], [1 / 3] + [2 / 3] * 4, []),
                 4: ([0, 3, 6, 9], [1, 3, 3, 3], [0.25] + [0.75] * 3, [10, 11]),
                 5: ([0, 4, 8, 12], [1, 4, 4, 4], [0.2] + [0.8] * 3, [13, 14])}
        for steps, (behind, sizes, factors, pending) in table.items():
            report = self.custom(steps, DOCUMENTED, code=1)
            windows = report["windows"]
            self.assertEqual([row["microbatches"][-1] for row in windows], behind)
            self.assertEqual([len(row["microbatches"]) for row in windows], sizes)
            for row, factor in zip(windows, factors):
                self.assertAlmostEqual(row["gradient_factor"], factor)
            self.assertEqual(report["pending"], pending)
            self.assertEqual([i for row in windows for i in row["microbatches"]] + pending, list(range(3 * steps)))
            self.assertIn("wrong-gradient", {lint["id"] for lint in report["lints"]})
            self.assertEqual(self.run_it("plain", "--set", "sync.when=custom", "--set", f"sync.expression={DOCUMENTED}", "--set",
                                         f"accumulation_steps={steps}", verb="predict").returncode, 0)

    def test_the_right_predicate_is_right_for_every_number_of_microbatches(self):
        for steps in range(1, 6):
            report = self.custom(steps, RIGHT, code=0)
            self.assertEqual([row["microbatches"] for row in report["windows"]],
                             [list(range(k * steps, (k + 1) * steps)) for k in range(3)])
            self.assertEqual([row["gradient_factor"] for row in report["windows"]], [1, 1, 1])
            self.assertEqual((report["pending"], report["lints"]), ([], []))

    def test_a_division_by_zero_is_a_finding_here_and_a_refusal_in_predict(self):
        arguments = ("--set", "sync.when=custom", "--set", f"sync.expression={DOCUMENTED}", "--set", "accumulation_steps=1")
        report = self.audit("plain", *arguments, code=1)
        lint = {lint["id"]: lint for lint in report["lints"]}["boundary-fails"]
        self.assertEqual(lint["severity"], "error")
        self.assertIn("divides by zero where i is 0 and steps is 1", lint["message"])
        self.assertEqual((report["windows"], report["hazards"]), ([], []))
        self.assertIn("divides by zero where i is 0 and steps is 1", self.run_it("plain", *arguments).stdout.replace("\n    ", " "))
        refused = self.run_it("plain", *arguments, verb="predict")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("divides by zero where i is 0 and steps is 1", refused.stderr)

    def test_a_predicate_that_fails_later_or_never_steps_is_a_finding(self):
        late = self.custom(4, "(i + 1) % (7 - i) == 0", code=1)  # at 7, in the second window
        self.assertIn("where i is 7", {lint["id"]: lint for lint in late["lints"]}["boundary-fails"]["message"])
        never = self.custom(2, "i == 7", code=1)
        self.assertIn("never-steps", {lint["id"] for lint in never["lints"]})
        self.assertEqual(never["pending"], list(range(6)))

    def test_a_step_without_synchronisation_is_told(self):
        report = self.custom(4, "i % 8 == 7", "--set", f"sync.step_expression={RIGHT}", code=1)
        self.assertEqual([(row["gradient_factor"], row["uniform"]) for row in report["windows"]],
                         [(1, False), (1, True), (1, False)])

    def test_what_a_strategy_gets_wrong_shows_in_its_windows(self):
        # 3 microbatches, each divided by 4.
        short = self.audit("plain", "--set", "last_window={policy: not-rescaled, microbatches: 3}", code=1)
        self.assertEqual([(row["microbatches"], row["gradient_factor"]) for row in short["windows"]], [([0, 1, 2], 0.75)])
        # The last microbatch is averaged over 4 ranks, the others stay each rank's own.
        alpa = self.audit("plain", "--set", "strategy=alpa", "--set", "sync.rewrite=false", code=1)
        self.assertEqual([row["uniform"] for row in alpa["windows"]], [False])
        self.assertIn("wrong-gradient", {lint["id"] for lint in alpa["lints"]})

    def test_what_is_thrown_away_is_pending_and_no_error(self):
        report = self.audit("plain", "--set", "last_window={policy: drop, microbatches: 3}", code=0)
        self.assertEqual((report["windows"], report["pending"]), ([], [0, 1, 2]))
        text = self.run_it("plain", "--set", "last_window={policy: drop, microbatches: 3}").stdout
        self.assertIn("the optimizer does not step", text)
        self.assertNotIn("every window's gradient", text)

    def test_exit_zero_and_bad_input(self):
        self.assertEqual(self.run_it("pool", "--exit-zero").returncode, 0)
        for arguments, says in (((["--set", "sync.when=custom", "--set", "sync.expression=i %% 2"]), "sync.expression"),
                                ((["--set", "sync.when=custom", "--set", "sync.expression=j == 0"]), "sync.expression"),
                                ((["--set", "strategy=deepspeed-zero2", "--set", "sync.when=last"]), "no_sync"),
                                ((["--step", "third"]), "--step")):
            done = self.run_it("plain", *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(says, done.stderr)
        # What the real system refuses stays refused, though the predicate would not even evaluate.
        done = self.run_it("plain", "--set", "strategy=deepspeed-zero2", "--set", "sync.when=custom", "--set",
                           f"sync.expression={DOCUMENTED}", "--set", "accumulation_steps=1")
        self.assertEqual(done.returncode, 2, done.stdout)

    def test_the_text_says_what_is_lost_to_whom_and_where_it_steps(self):
        text = self.run_it("pool").stdout
        for part in ("12 clobbered values", "layer.qkv.weight_gradient", "layer.d_wo_out.gather", "buffers.tp_gather"):
            self.assertIn(part, text)
        text = self.run_it("plain", "--set", "sync.when=custom", "--set", f"sync.expression={DOCUMENTED}").stdout
        for part in ("steps behind 0, 3, 6, 9", "3/4 = 0.750", "pending"):
            self.assertIn(part, text)
        self.assertIn("NOTHING WRONG FOUND", self.run_it("plain").stdout)
        for job in ("pool", "plain"):
            self.assertLessEqual(max(map(len, self.run_it(job).stdout.splitlines())), 100)
        self.assertTrue(self.run_it("pool", "--format", "markdown").stdout.startswith("## Audit of oracle"))

    def test_writes_a_page_but_never_over_the_job(self):
        page = self.folder / "audit.html"
        done = self.run_it("pool", "--html", page, "--exit-zero")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("12 clobbered values", done.stdout)
        self.assertTrue(page.read_text().startswith("<!"))
        self.assertIn("layer.d_wo_out.gather", page.read_text())
        self.assertEqual(self.run_it("pool", "--html", "-", "--exit-zero").stdout, page.read_text())
        done = self.run_it("pool", "--html", self.folder / "pool.yaml")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("would be overwritten", done.stderr)
        self.assertEqual((self.folder / "pool.yaml").read_text(), POOL)

    def test_a_step_that_is_too_long_to_follow_is_refused(self):
        done = self.run_it("plain", "--set", "accumulation_steps=1000000")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("more than the 20,000,000 that are kept", done.stderr)
        self.assertIn("hint: use fewer microbatches", done.stderr)

    def test_a_count_that_was_cut_short_is_called_so(self):
        first = self.run_it("pool", "--set", "accumulation_steps=1100", "--set", "network.layers=4").stdout.splitlines()[1]
        self.assertTrue(first.startswith("WRONG: more than 10,000 clobbered values"), first)

    def test_says_the_same_twice(self):
        for form in ("text", "json", "markdown"):
            self.assertEqual(self.run_it("pool", "--format", form).stdout, self.run_it("pool", "--format", form).stdout)

    def test_a_prediction_of_wrong_gradients_says_so_in_its_headline_and_in_reports_of_its_trace(self):
        trace, page = self.folder / "wrong.trace", self.folder / "wrong.html"
        done = self.run_it("pool", "--trace", trace, "--html", page, verb="predict")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("GRADIENTS ARE WRONG", " ".join(done.stdout.splitlines()[:4]))
        self.assertIn("GRADIENTS ARE WRONG", page.read_text())
        right = self.folder / "right.trace"
        done = self.run_it("pool", "--set", "buffers.tp_gather=pooled", "--trace", right, verb="predict")
        self.assertNotIn("WRONG", done.stdout)
        for form in ("text", "markdown"):
            told = subprocess.run([PROGRAM, "report", right, trace, "--format", form], capture_output=True, text=True, timeout=60)
            self.assertIn("GRADIENTS ARE WRONG", " ".join(told.stdout.split()))
        told = json.loads(subprocess.run([PROGRAM, "report", right, trace, "--format", "json"], capture_output=True, text=True,
                                         timeout=60).stdout)
        self.assertEqual([[lint["id"] for lint in row["lints"] if lint["severity"] == "error"] for row in told["traces"]],
                         [[], ["wrong-gradient"]])


if __name__ == "__main__":
    unittest.main()
