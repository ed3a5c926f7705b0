# SPDX-License-Identifier: Apache-2.0
"""What of pytorch_judge.py needs neither torch nor a GPU: jobs, predictions, the comparison, refusals."""

import gzip
import io
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest

from judge import case, comparison, frames, marks, prediction, snapshot

PROGRAM = os.environ["TIDEMARK_PROGRAM"]
JUDGE = pathlib.Path(__file__).resolve().with_name("pytorch_judge.py")
STEPS = ("forward 0", "backward 0", "optimizer")


def call(*words, options=()):
    return subprocess.run([sys.executable, *options, str(JUDGE), *map(str, words)], capture_output=True, text=True,
                          timeout=240, check=False)


def the_case(name):
    (found,) = case.cases(name)
    return found


class Jobs(unittest.TestCase):
    def test_every_case_is_a_job_that_is_predicted(self):
        program = prediction.Program(PROGRAM)
        for pattern in ("oracle-*-n4-m4", "oracle-*-n8-m1", "1b-*-n4-m2"):
            for each in case.cases(pattern):
                with self.subTest(each.name):
                    predicted = program.prediction(each.job())
                    self.assertEqual(predicted["schema"], "tidemark.prediction/1")
                    self.assertEqual([step["kind"] for step in predicted["steps"]], ["first", "second", "steady"])
                    job = predicted["job"]
                    self.assertEqual((job["strategy"], job["layout"]["dp"], job["accumulation_steps"]),
                                     (each.strategy, each.ranks, each.microbatches))
                    if each.is_ddp:
                        self.assertEqual(job["buffers"]["gradient_as_bucket_view"], each.bucket_view)
                    if not each.strategy.startswith("fsdp1"):
                        self.assertEqual(job["buffers"]["set_to_none"], each.set_to_none)

    def test_shards_in_host_memory_are_rehearsed_as_predicted(self):
        """PyTorch 2.15 on fake tensors (--rehearse), the most bytes of the third step: predicted but for scalars and
        counters, which the judge explains one by one."""
        program = prediction.Program(PROGRAM)
        for name, measured in (("oracle-fsdp2-scatter-each-offload-n4-m4", 2_243_610_728),
                               ("oracle-fsdp2-scatter-each-in-place-offload-n4-m2", 2_243_610_728),
                               ("oracle-fsdp2-defer-offload-n4-m1", 2_243_610_728),
                               ("oracle-fsdp2-defer-offload-n4-m4", 2_686_146_664),
                               ("oracle-hsdp-offload-n4-m2", 2_464_878_696),
                               ("oracle-hsdp-offload-n8-m4", 2_354_244_712),
                               ("1b-fsdp2-scatter-each-offload-n4-m4", 8_116_752_920),
                               ("1b-fsdp2-defer-offload-n4-m4", 12_516_946_456),
                               ("1b-hsdp-offload-n4-m2", 10_316_849_688)):
            with self.subTest(name):
                predicted = program.prediction(the_case(name).job())["steps"][2]["allocated_bytes"]
                self.assertEqual(measured - predicted, 104 if name.startswith("oracle") else 536)

    def test_names_are_unique_and_those_of_most_value_come_first(self):
        names = [each.name for each in case.cases()]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(names[0], "oracle-fsdp2-scatter-each-n4-m4")

    def test_the_verb_jobs_prints_them(self):
        done = call("jobs", "--cases", "1b-ddp-last-view-n4-m2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("gradient_as_bucket_view: true", done.stdout)

    def test_a_pattern_that_names_no_case_is_wrong_input(self):
        done = call("--cases", "nothing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no case is called 'nothing'", done.stderr)


class Refusals(unittest.TestCase):
    def test_without_torch_one_sentence_says_what_to_install(self):
        done = call(options=("-E", "-S"))  # no site packages, whatever is installed
        self.assertEqual(done.returncode, 3)
        self.assertIn("pip install torch", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_a_snapshot_that_names_a_class_is_not_opened(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "evil.pickle.gz"
            path.write_bytes(gzip.compress(pickle.dumps(io.BytesIO)))
            with self.assertRaises(pickle.UnpicklingError):
                snapshot.read_snapshot(path)


class Reading(unittest.TestCase):
    def test_a_program_is_read_as_allocations_in_order_with_peaks_by_phase(self):
        step = prediction.read_program(
            'buffers:\n'
            '  weight          parameter  100  bf16  born on compute, resident, kept\n'
            '  "a name"[1][2]  gradient    10  fp32  born on compute\n'
            'program:\n'
            '  begin load microbatch 0\n'
            '  alloc "a name"[0][1]\n'
            '  end load\n'
            '  begin backward microbatch 0\n'
            '  free "a name"[0][1]\n'
            '  alloc "a name"[0][0]\n'
            '  end backward\n'
            '  begin optimizer\n')
        self.assertEqual(step.allocations, [prediction.Allocation("forward 0", 40, "a name"),
                                            prediction.Allocation("backward 0", 40, "a name")])
        self.assertEqual(step.peaks, {"forward 0": 40, "backward 0": 40, "optimizer": 40})

    def test_marks_are_told_from_tensors(self):
        self.assertEqual([marks.phase_of_mark(marks.mark_bytes(phase)) for phase in range(9)], list(range(9)))
        self.assertIsNone(marks.phase_of_mark(302))
        self.assertIsNone(marks.phase_of_mark(4))
        self.assertEqual([marks.phase_name(phase, 2) for phase in range(5)],
                         ["forward 0", "backward 0", "forward 1", "backward 1", "optimizer"])

    def test_of_a_deep_stack_the_operator_the_node_and_a_function_stay(self):
        names = ("at::_ops::empty_strided::call(long)", "at::_ops::mm::redispatch(long)", "at::_ops::mm::call(long)",
                 "??", "torch::autograd::generated::MmBackward0::apply(std::vector)", "at::_ops::t::call(long)")
        stack = [{"name": name, "filename": "lib.so", "line": 0} for name in names]
        stack.append({"name": "step", "filename": "/x/torch/optim/adamw.py", "line": 7})
        self.assertEqual(frames.as_text(frames.shortened(stack)), "aten.mm < MmBackward0 < step adamw.py:7")


    def test_a_reduced_snapshot_keeps_what_memory_viz_reads(self):
        frame = {"name": "at::_ops::mm::call(long)", "filename": "lib.so", "line": 0}
        event = {"action": "alloc", "addr": 1, "size": 2, "stream": 0, "time_us": 3, "frames": [frame] * 60}
        block = {"address": 1, "size": 512, "requested_size": 2, "state": "active_allocated", "frames": [frame]}
        whole = {"segments": [{"address": 1, "total_size": 2 << 20, "blocks": [block], "frames": [frame]}],
                 "device_traces": [[event]], "allocator_settings": {"knob": 1}}
        small = snapshot.reduced(whole)
        self.assertEqual(small["device_traces"], [[{**event, "frames": [
            {"name": "aten.mm", "filename": "", "line": 0}]}]])
        self.assertEqual(small["segments"], [{"address": 1, "total_size": 2 << 20, "frames": [],
                                              "blocks": [{**block, "frames": []}]}])
        self.assertEqual(small["allocator_settings"], {"knob": 1})


class Comparison(unittest.TestCase):
    """A record made from the prediction itself, then with one fault after another."""

    NAME = "oracle-fsdp2-scatter-each-n4-m1"

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.program = prediction.Program(PROGRAM)
        self.job = the_case(self.NAME).job()
        self.allocations = [(each.phase, each.size, "somebody") for each in self.program.step(self.job).allocations
                            if each.who not in ("head.row_max", "head.row_sum", "head.target_logit")]

    def compared(self, allocations, more=0):
        self.write(allocations, more)
        return call("compare", self.folder, "--tidemark", PROGRAM, "--details")

    def write(self, allocations, more):
        predicted = self.program.prediction(self.job)
        blocks = predicted["peak"]["allocator_bytes"]
        peaks = [{"peak": {"requested_bytes": step["allocated_bytes"] + 1000 + more, "allocated_bytes": blocks + more,
                           "reserved_bytes": step["reserved_bytes"]}, "after": {"requested_bytes": 0}}
                 for step in predicted["steps"]]
        record = {"rehearsal": False, "job": self.job, "predicted": None, "snapshot": f"{self.NAME}.pickle.gz",
                  "measured": {"before_parameters": {"requested_bytes": 1000, "allocated_bytes": 0, "reserved_bytes": 0},
                               "steps": peaks}}
        (self.folder / f"{self.NAME}.json").write_text(json.dumps(record), encoding="utf-8")
        events = []
        for phase, name in enumerate(STEPS):
            events.append((marks.mark_bytes(phase), "mark"))
            events += [(size, who) for place, size, who in allocations if place == name]
        trace = [{"action": "alloc", "addr": address, "size": size, "stream": 0,
                  "frames": [{"name": who, "filename": "", "line": 0}]} for address, (size, who) in enumerate(events)]
        snapshot.write_snapshot({"segments": [], "device_traces": [trace]}, self.folder / f"{self.NAME}.pickle.gz")

    def test_without_records_or_program_one_sentence_says_so(self):
        done = call("compare", self.folder, "--tidemark", PROGRAM)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, rf"^{self.folder} holds no record of a case '\*': [^\n]+\n$")
        self.write(self.allocations, 0)
        done = call("compare", self.folder, "--tidemark", PROGRAM, "--cases", "1b-ddp-last-view-n4-m2")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no record of a case '1b-ddp-last-view-n4-m2'", done.stderr)
        for missing in (self.folder / "tidemark", self.folder):
            done = call("compare", self.folder, "--tidemark", missing)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertEqual(done.stderr, f"no prediction: --tidemark: there is no program {missing}\n")

    def row(self, done):
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(self.NAME + " ")]
        return dict(zip(("predicted", "first", "second", "third", "events", "allocated", "allocated %", "reserved",
                         "reserved %", "matched", "parts", "moved", "known", "open"), line.split()[1:]))

    def test_an_equal_step_matches_whole(self):
        done = self.compared(self.allocations)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        row = self.row(done)
        self.assertEqual((row["first"], row["third"], row["allocated"], row["reserved"], row["moved"], row["open"]),
                         ("+0", "+0", "+0", "+0", "0", "0"))

    def test_peaks_differ_by_what_was_measured_more(self):
        row = self.row(self.compared(self.allocations, more=self.predicted_blocks() // 100))
        self.assertEqual((row["third"], row["allocated %"]), (row["allocated"], "+0.99%"))

    def predicted_blocks(self):
        return self.program.prediction(self.job)["peak"]["allocator_bytes"]

    def test_a_snapshot_without_marks_is_no_step(self):
        self.compared(self.allocations)
        snapshot.write_snapshot({"segments": [], "device_traces": [[]]}, self.folder / f"{self.NAME}.pickle.gz")
        done = call("compare", self.folder, "--tidemark", PROGRAM)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no marks of phases", done.stdout)

    def test_an_allocation_that_nobody_predicted_is_named(self):
        done = self.compared([*self.allocations, ("backward 0", 12345678, "aten.surprise")])
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"only measured +backward +1 x +12,345,678  aten\.surprise")

    def test_a_predicted_allocation_that_does_not_come_is_named(self):
        (at, *_) = [index for index, each in enumerate(self.allocations) if each[1] == 524288000]
        done = self.compared(self.allocations[:at] + self.allocations[at + 1:])
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"only predicted +forward +1 x +524,288,000  head\.")

    def test_one_buffer_in_several_tensors_matches_in_parts(self):
        (at, *_) = [index for index, each in enumerate(self.allocations) if each[1] == 22548480]
        phase, size, who = self.allocations[at]
        halves = [(phase, size - 4096, who), (phase, 4096, who)]
        row = self.row(self.compared(self.allocations[:at] + halves + self.allocations[at + 1:]))
        self.assertEqual((row["parts"], row["open"]), ("3", "0"))

    def test_another_order_within_a_phase_is_no_difference(self):
        front = [("backward 0", 1111, "a"), ("backward 0", 2222, "b"), ("backward 0", 3333, "c")]
        one = [prediction.Allocation(*each) for each in front]
        other = [prediction.Allocation(*each) for each in (front[2], front[0], front[1])]
        matching = comparison.match(one, other, is_rehearsal=False)
        self.assertEqual((matching.matched, matching.moved, matching.predicted_only, matching.measured_only),
                         (2, 1, [], []))

    def test_a_known_reason_takes_only_what_names_it(self):
        measured = [prediction.Allocation("backward 0", 8192, "aten.add_Tensor"),
                    prediction.Allocation("backward 0", 8192, "aten.add_Tensor < forward decoder.py:71")]
        matching = comparison.match([], measured, is_rehearsal=False)
        self.assertEqual([each.who for each in matching.measured_only], ["aten.add_Tensor < forward decoder.py:71"])
        self.assertEqual(sum(matching.explained.values()), 1)

    def test_a_reason_of_what_stands_alone_takes_no_partner_away(self):
        who = "aten.embedding_backward < EmbeddingBackward0"
        gradient, workspace = (prediction.Allocation("backward 0", size, who) for size in (65536000, 18452480))
        predicted = prediction.Allocation("backward 0", 65536000, "gradient of embedding.embedding")
        matching = comparison.match([predicted], [gradient, workspace], is_rehearsal=False)
        self.assertEqual((matching.matched, matching.predicted_only, matching.measured_only), (1, [], []))
        self.assertEqual(sum(matching.explained.values()), 1)


if __name__ == "__main__":
    unittest.main()
