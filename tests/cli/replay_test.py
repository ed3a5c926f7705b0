#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verb replay, from outside: a trace under its own allocator is what was recorded, and under another one what
predict says of that."""

import json
import pathlib
import pickle
import re
import shlex
import subprocess
import tempfile
import unittest

from tidemark import PROGRAM, run

JOBS = pathlib.Path(__file__).resolve().parents[1] / "jobs"
JOB = JOBS / "gpt2-ddp.yaml"


class Replay(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.trace = pathlib.Path(cls.folder.name) / "step.trace"
        cls.prediction = cls.predict("--trace", cls.trace)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @staticmethod
    def predict(*arguments):
        done = run("predict", JOB, *arguments, "--format", "json", "--exit-zero")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def replay(self, *arguments, code=0):
        done = run("replay", self.trace, *arguments, "--format", "json")
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout)

    def test_under_its_own_allocator_it_is_what_was_recorded(self):
        report = self.replay()
        self.assertEqual(report["schema"], "tidemark.replay/1")
        self.assertEqual(report["allocated_bytes"], self.prediction["peak"]["allocated_bytes"])
        self.assertEqual(report["allocator_bytes"], self.prediction["peak"]["allocator_bytes"])
        self.assertEqual(report["reserved_bytes"], self.prediction["peak"]["reserved_bytes"])
        self.assertEqual(report["recorded"]["reserved_bytes"], report["reserved_bytes"])

    def test_under_another_one_it_is_what_predict_says_of_that(self):
        for setting in ("allocator.expandable_segments=true", "allocator.max_split_size=128 MiB",
                        "allocator.kind=arena", "allocator.kind=exact", "allocator.kind=cuda-async"):
            with self.subTest(setting):
                expected = self.predict("--set", setting)["peak"]
                report = self.replay("--set", setting)
                self.assertEqual(report["reserved_bytes"], expected["reserved_bytes"])
                self.assertEqual(report["allocator_bytes"], expected["allocator_bytes"])

    def test_other_settings_are_what_their_commands_say_least_reserved_first(self):
        expandable = self.trace.with_name("with_knobs.trace")  # of which the others have none
        self.replay("--set", "expandable_segments=true", "--trace", expandable)
        for trace in (self.trace, expandable):
            others = json.loads(run("replay", trace, "--format", "json").stdout)["others"]
            self.assertGreaterEqual(len(others), 6)
            self.assertEqual(others, sorted(others, key=lambda each: each["reserved_bytes"]))
            for other in others:
                program, *command = shlex.split(other["command"])
                self.assertEqual(program, "tidemark")
                report = json.loads(run(*command, "--format", "json").stdout)
                self.assertEqual((report["allocator"], report["reserved_bytes"]), (other["allocator"], other["reserved_bytes"]),
                                 other["command"])

    def test_a_setting_is_told_against_the_one_that_the_trace_has(self):
        own = self.replay()
        asked = self.replay("--set", "expandable_segments=true")
        self.assertEqual((own["own"], asked["own"]), (True, False))
        self.assertEqual([each["reserved_bytes"] for each in asked["others"]], [own["reserved_bytes"]])
        text = " ".join(run("replay", self.trace, "--set", "expandable_segments=true").stdout.split())
        self.assertRegex(text, r"reserves .* at most, .* (less|more) than torch-caching, as the trace has it")
        self.assertEqual(text.count("asked for"), 1)

    def test_what_a_recording_reserved_beyond_the_replay_is_told(self):
        snapshots = pathlib.Path(__file__).resolve().parent.parent / "traces" / "snapshots"
        text = run("replay", snapshots / "segments.pickle").stdout
        self.assertIn("Against the recording", text)
        self.assertIn("PYTORCH_CUDA_ALLOC_CONF", text)
        self.assertNotIn("Against the recording", run("replay", self.trace).stdout)

    def test_what_is_reserved_is_used_pinned_or_releasable(self):
        report = self.replay()
        self.assertEqual(report["unused_bytes"],
                         report["releasable_bytes"] + sum(each["free_bytes"] for each in report["pinned"]))
        self.assertAlmostEqual(report["fragmentation"] * report["reserved_bytes"], report["unused_bytes"], delta=1)
        for segment in report["pinned"]:
            held = sum(holder["bytes"] for holder in segment["held_by"])
            self.assertLessEqual(held, segment["segment_bytes"] - segment["free_bytes"])
            self.assertGreater(held, 0)

    def test_a_smaller_device_gives_the_outcome_of_predict(self):
        peak = self.prediction["peak"]
        for capacity in (peak["reserved_bytes"], peak["minimum_bytes"], peak["minimum_bytes"] - (2 << 20)):
            expected = self.predict("--capacity", capacity)["capacity"]
            fails = expected["outcome"] == "out_of_memory"
            report = self.replay("--capacity", capacity, code=1 if fails else 0)
            self.assertEqual(report["cache_flushes"], expected["cache_flushes"])
            self.assertEqual(report["refused_bytes"], expected["request_bytes"] if fails else None)

    def test_the_replayed_trace_is_a_trace(self):
        out = pathlib.Path(self.folder.name) / "other.trace"
        report = self.replay("--allocator", "arena", "--trace", out)
        again = json.loads(run("report", out, "--format", "json").stdout)
        self.assertEqual(again["traces"][0]["peak"]["reserved_bytes"], report["reserved_bytes"])
        self.assertIn("arena", again["traces"][0]["origin"])

    def test_a_replayed_trace_has_its_allocator_as_its_own(self):
        written = self.trace.with_name("expandable.trace")
        asked = self.replay("--set", "expandable_segments=true", "--trace", written)
        done = run("replay", written, "--format", "json")
        again = json.loads(done.stdout)
        self.assertTrue(again["own"])
        self.assertEqual((again["allocator"], again["reserved_bytes"]), (asked["allocator"], asked["reserved_bytes"]))
        self.assertNotIn("Against the recording", run("replay", written).stdout)

    def snapshot(self, **settings):
        """What PyTorch 2.11 writes of its settings, beside one block."""
        path = self.trace.with_name("settings.pickle")
        told = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
                "expandable_segments": False, "pinned_num_register_threads": 1, "release_lock_on_cudamalloc": False,
                "pinned_use_cuda_host_register": False, "graph_capture_record_stream_reuse": False,
                "roundup_power2_divisions": {str(1 << i): 0 for i in range(16)}}
        block = {"address": 1 << 40, "size": 3 << 20, "requested_size": 3 << 20, "state": "active_allocated", "frames": []}
        segment = {"device": 0, "address": 1 << 40, "total_size": 20 << 20, "stream": 0, "blocks": [
            block, {"address": (1 << 40) + (3 << 20), "size": 17 << 20, "requested_size": 0, "state": "inactive", "frames": []}]}
        path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [[]], "allocator_settings": told | settings}))
        return path

    def test_a_snapshot_has_the_settings_that_it_tells(self):
        for settings, told in (
            ({}, "torch-caching"),
            ({"expandable_segments": True}, "torch-caching expandable_segments=true"),
            ({"max_split_size": 128 << 20}, "torch-caching max_split_size=128MiB"),
            ({"garbage_collection_threshold": 0.8}, "torch-caching"),  # of a memory fraction, which is not told
            ({"garbage_collection_threshold": 0.8, "PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.5"},
             "torch-caching garbage_collection_threshold=0.8 memory_fraction=0.5"),
            ({"PYTORCH_CUDA_ALLOC_CONF": "pinned_use_cuda_host_register:True," * 9 + "large_segment_size_mb:64"},
             "torch-caching large_segment_size=64MiB"),
            ({"PYTORCH_CUDA_ALLOC_CONF": "a:b:c,[,]:,large_segment_size_mb:'64',max_non_split_rounding_mb:{1: 2},:,"},
             "torch-caching"),
            ({"roundup_power2_divisions": {str(1 << i): 4 for i in range(16)}}, "torch-caching roundup_power2_divisions=4"),
            ({"roundup_power2_divisions": {str(1 << i): 0 if i < 8 else 1 << (i - 8) if i < 10 else 8 for i in range(16)}},
             'torch-caching roundup_power2_divisions="128:0,256:1,512:2,1024:8,>:8"'),
            # These have no keys of their own; what has one says it there, where a later call has changed it.
            ({"PYTORCH_CUDA_ALLOC_CONF": "large_segment_size_mb: 64, roundup_power2_divisions:[256:1,>:2],max_split_size_mb:99,"
                                         "max_non_split_rounding_mb:30"},
             "torch-caching max_non_split_rounding=30MiB large_segment_size=64MiB"),
        ):
            with self.subTest(told):
                done = run("replay", self.snapshot(**settings), "--format", "json")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                report = json.loads(done.stdout)
                self.assertEqual((report["allocator"], report["own"]), (told, True))
        text = run("replay", self.snapshot(expandable_segments=True)).stdout
        self.assertIn("as the trace has it", text)

    def test_settings_that_no_allocator_takes_are_left_out_with_a_note(self):
        done = run("replay", self.snapshot(max_split_size=1), "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"note: .*settings.pickle: its allocator's max_split_size=1 is left out: expected a size of at least 20.0 MiB")
        self.assertEqual(json.loads(done.stdout)["allocator"], "torch-caching")
        # PyTorch takes both of these together; here the first one stays.
        done = run("replay", self.snapshot(expandable_segments=True, max_split_size=128 << 20), "--format", "json")
        self.assertIn("note: ", done.stderr)
        self.assertIn("its allocator's max_split_size=134217728 is left out", done.stderr)
        self.assertEqual(json.loads(done.stdout)["allocator"], "torch-caching expandable_segments=true")

    def test_settings_go_into_a_snapshot_and_come_back(self):
        for settings, conf in ((["expandable_segments=true"], "expandable_segments:True"),
                               (["max_split_size=128MiB", "roundup_power2_divisions=256:1,512:2,>:8"],
                                "max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,1024:8,>:8]"),
                               (["kind=arena"], "")):
            with self.subTest(settings):
                trace = self.trace.with_name("asked.trace")
                asked = self.replay(*(word for each in settings for word in ("--set", each)), "--trace", trace)
                written = self.trace.with_name("asked.pickle")
                self.assertEqual(run("convert", trace, "-o", written).returncode, 0)
                told = pickle.loads(written.read_bytes())["allocator_settings"]
                self.assertEqual(told["PYTORCH_CUDA_ALLOC_CONF"], conf)
                again = json.loads(run("replay", written, "--format", "json").stdout)
                self.assertEqual((again["allocator"], again["reserved_bytes"]), (asked["allocator"], asked["reserved_bytes"]))

    def test_a_trace_on_stdout_is_nothing_but_the_trace(self):
        written = self.trace.with_name("replayed.trace")
        run("replay", self.trace, "--allocator", "exact", "--trace", written)
        done = subprocess.run([PROGRAM, "replay", self.trace, "--allocator", "exact", "--trace", "-"], capture_output=True, timeout=240)
        self.assertEqual(done.stdout, written.read_bytes())

    def test_the_timeline_reaches_the_peak(self):
        report = self.replay()
        self.assertLessEqual(len(report["timeline"]), 200)
        self.assertEqual(max(each["reserved_bytes"] for each in report["timeline"]), report["reserved_bytes"])

    def test_text_names_what_holds_a_segment(self):
        text = run("replay", self.trace).stdout
        self.assertIn("Free memory that cannot go back", text)
        self.assertRegex(text, r"torch-caching reserves [\d.]+ GiB at most")
        self.assertNotRegex(text, re.compile(r"max_split_size=\d{6}"))

    def test_bad_input_is_a_sentence(self):
        for arguments, words in {
            ("--set", "max_split_siz=128MiB"): "did you mean allocator.max_split_size",
            ("--set", "max_split_size"): "expected key=value",
            ("--allocator", "exact", "--set", "max_split_size=128MiB"): "no such knob",
            ("--allocator", "tcmalloc"): "--allocator",
            ("--role", "stage 7"): "no trace has a role 'stage 7'",
            ("--capacity", "80"): "write the unit",
            ("--trace", str(self.trace)): "overwritten",
        }.items():
            with self.subTest(arguments):
                done = run("replay", self.trace, *arguments)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(words, done.stderr)
        self.assertEqual(run("replay", "nowhere.trace").returncode, 2)
        self.assertEqual(run("replay", JOB).returncode, 2)


if __name__ == "__main__":
    unittest.main()
