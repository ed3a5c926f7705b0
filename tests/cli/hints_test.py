# SPDX-License-Identifier: Apache-2.0
"""Hints hold what they promise: the strategies they name exist, the settings they name are taken."""

import json
import pathlib
import re
import tempfile
import unittest

from tidemark import run

TESTS = pathlib.Path(__file__).resolve().parent
SOURCES = sorted((TESTS.parent.parent / "sim").rglob("*.cc"))
JOB = TESTS.parent / "jobs" / "oracle.yaml"


def texts():
    """The string literals of the simulator, joined where the source breaks them."""
    for path in SOURCES:
        source = re.sub(r'"\s*\n\s*"', "", path.read_text())
        for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', source):
            if " " in text:
                yield path.name, text


class Hints(unittest.TestCase):
    def test_a_strategy_that_a_text_names_exists(self):
        names = {row["name"] for row in json.loads(run("list", "strategies", "--format", "json").stdout)}
        families = {name.split("-")[0] for name in names}
        word = re.compile(r"(?<![\w./-])(?:%s)-[a-z0-9*-]*[a-z0-9*]" % "|".join(families))
        checked = 0
        for path, text in texts():
            for name in word.findall(text):
                checked += 1
                with self.subTest(path=path, text=text):
                    known = [each for each in names if re.fullmatch(name.replace("*", ".*"), each)]
                    self.assertTrue(known, name)
        self.assertGreater(checked, 30)

    def test_a_setting_that_a_text_names_is_one(self):
        phrase = re.compile(r"\b(?:set|leave) ([a-z_]+(?:\.[a-z_]+)+) (?:to|at) ([\w-]+(?:(?:, [\w-]+)* or [\w-]+)?)")
        settings = {(key, value) for _, text in texts() for key, values in phrase.findall(text)
                    for value in re.split(", | or ", values) if value not in ("a", "more")}
        self.assertGreater(len(settings), 20)
        for key, value in sorted(settings):
            with self.subTest(key=key, value=value):
                error = run("job", JOB, "--set", f"{key}={value}").stderr.splitlines()
                self.assertNotIn("expected", error[0] if error else "")
                self.assertNotIn("there is no such key", error[0] if error else "")

    def lints(self, *settings):
        arguments = [part for setting in settings for part in ("--set", setting)]
        report = json.loads(run("predict", JOB, *arguments, "--format", "json", "--exit-zero").stdout)
        return {lint["id"]: lint["hint"] for lint in report["lints"]}

    def refusal(self, *settings):
        done = run("job", JOB, *[part for setting in settings for part in ("--set", setting)])
        self.assertEqual(done.returncode, 2, done.stdout)
        return done.stderr

    def test_how_to_defer_is_told_in_the_terms_of_the_system(self):
        for settings, way in ((["strategy=alpa-style1"], "strategy alpa"), (["strategy=jax-multisteps"], "jax-scan"),
                              (["strategy=jax-scan-stacked"], "jax-scan"),
                              (["strategy=jax-scan", "sync.when=every"], "sync.when: last")):
            with self.subTest(settings=settings):
                hint = self.lints(*settings, "accumulation_steps=4", "layout.dp=4")["sync-every-microbatch"]
                self.assertIn(way, hint)
                self.assertNotIn("no_sync", hint)
                self.assertNotIn("cannot defer", hint)
        ddp = self.lints("strategy=ddp-every", "accumulation_steps=4", "layout.dp=4")["sync-every-microbatch"]
        self.assertIn("no_sync", ddp)

    def test_tokens_are_counted_by_the_setting_that_the_hint_names(self):
        uneven = ["sequence_length.max=1024", "sequence_length.mean=700", "accumulation_steps=4", "layout.dp=4"]
        for strategy, counts in (("ddp-last", "fsdp2-scatter-each"), ("fsdp2-defer", "fsdp2-defer")):
            with self.subTest(strategy=strategy):
                hint = self.lints(f"strategy={strategy}", *uneven)["mean-of-means"]
                settings = re.findall("[a-z_]+=[a-z0-9-]+", hint)
                self.assertEqual(f"strategy={counts}" in settings, counts != strategy)
                self.assertNotIn("mean-of-means", self.lints(f"strategy={strategy}", *settings, *uneven))

    def test_the_sum_goes_back_to_fp32_by_what_the_hint_names(self):
        narrow = ["strategy=nanotron", "accumulation_steps=64", "precision.accumulate=bf16", "precision.reduce=bf16"]
        hint = self.lints(*narrow)["low-precision-sum"]
        self.assertIn("precision.accumulate, precision.reduce: fp32", hint)
        self.assertNotIn("low-precision-sum", self.lints("strategy=nanotron", "accumulation_steps=64",
                                                         "precision.accumulate=fp32", "precision.reduce=fp32"))

    def test_no_hint_sends_back_to_the_strategy_that_refused(self):
        error = self.refusal("strategy=alpa-zero2", "shard.optimizer=false")
        self.assertIn("shard.optimizer: Zero2Parallel shards optimizer states", error)
        self.assertNotIn("use alpa-zero2", error)
        error = self.refusal("strategy=alpa-zero2", "sync.collective=all_reduce")
        self.assertIn("sync.collective: Zero2Parallel reduce-scatters gradients", error)
        self.assertIn("use alpa-zero2", self.refusal("strategy=alpa", "shard.optimizer=true"))
        self.assertIn("jax-scan, with buffers.stack_gradients false",
                      self.refusal("strategy=jax-scan-stacked", "sync.when=last"))

    def test_what_was_set_is_what_is_blamed(self):
        self.assertIn("gradient_flow.loop: a loop inside one executable",
                      self.refusal("strategy=alpa", "gradient_flow.loop=program"))

    def test_a_pipeline_is_offered_where_there_is_one(self):
        hint = self.refusal("strategy=fsdp2-defer", "layout.pp=2").split("hint: ")[1]
        named = re.findall(r"ddp-last|nanotron|megatron|alpa", hint)
        self.assertEqual(len(named), 4)
        for strategy in named:
            with self.subTest(strategy=strategy):
                self.assertEqual(run("job", JOB, "--set", f"strategy={strategy}", "--set", "layout.pp=2").returncode, 0)

    def test_the_number_of_microbatches_is_changed_where_it_is_decided(self):
        pipeline = ["strategy=nanotron", "layout.pp=4", "accumulation_steps=8"]
        short = [*pipeline, "last_window.microbatches=2", "last_window.policy=rescaled"]
        error = self.refusal(*short)  # 1F1B of 4 stages asserts 3 microbatches
        self.assertIn("last_window.microbatches: nanotron's 1F1B asserts", error)
        self.assertIn("hint: set last_window.policy to carry-over", error)
        self.lints(*short, "last_window.policy=carry-over")
        flushes = [*pipeline, "pipeline_microbatches=2"]
        self.assertIn("hint: set pipeline_microbatches to 3", self.refusal(*flushes))
        flushes = ["strategy=megatron", *flushes[1:]]
        self.assertIn("set pipeline_microbatches to 4 or more", self.lints(*flushes)["pipeline-underfilled"])
        self.assertNotIn("pipeline-underfilled", self.lints(*flushes, "pipeline_microbatches=4"))
        short = ["strategy=megatron", *short[1:]]
        self.assertIn("set last_window.policy to carry-over", self.lints(*short)["pipeline-underfilled"])
        self.assertNotIn("pipeline-underfilled", self.lints(*short, "last_window.policy=carry-over"))
        interleaved = [*short, "layout.pp=2", "layout.vpp=2", "schedule=interleaved", "last_window.microbatches=3"]
        self.assertIn("last_window.microbatches: the interleaved schedule", self.refusal(*interleaved))
        self.lints(*interleaved, "last_window.policy=carry-over")
        uneven = [*short, "pipeline_microbatches=4"]
        self.assertIn("hint: set last_window.policy to carry-over", self.refusal(*uneven))
        self.lints(*uneven, "last_window.policy=carry-over")

    def test_a_pipeline_offers_no_condition_that_it_refuses(self):
        custom = ["strategy=ddp-last", "layout.pp=2", "sync.when=custom", "sync.expression=i == 1"]
        hint = self.refusal(*custom).split("hint: ")[1]
        self.assertIn("sync.when to last", hint)
        self.assertNotIn("every", hint)
        self.lints("strategy=ddp-last", "layout.pp=2", "sync.when=last")

    def test_more_stages_than_layers_are_told_apart_from_stages_that_do_not_divide(self):
        self.assertIn("lower layout.pp, to 4 stages at most", self.refusal("strategy=nanotron", "layout.pp=8"))
        self.assertIn("lower layout.pp or layout.vpp, to 4 stages at most",
                      self.refusal("strategy=megatron", "layout.pp=4", "layout.vpp=2", "schedule=interleaved"))
        self.assertIn("layout.layers_per_stage", self.refusal("strategy=nanotron", "layout.pp=3"))

    def follow(self, job, settings):
        """Does what each refusal's hint says first, until the job is taken; returns the settings."""
        dtypes = {"precision.params": "bf16", "precision.gradients": "bf16", "precision.accumulate": "fp32", "precision.reduce": "fp32"}
        for _ in range(8):
            done = run("job", job, *[part for pair in settings.items() for part in ("--set", "=".join(pair))])
            if done.returncode == 0:
                return settings
            hint = done.stderr.split("hint: ")[1]
            value = re.search(r"set ([a-z_.]+[a-z]) to ([\w-]+)", hint)
            dtype = re.search(r"give ([a-z_.]+)(?: and ([a-z_.]+) the same dtype| the dtype of ([a-z_.]+))", hint)
            strategy = re.search(r"use ([a-z0-9-]+)", hint)
            if value:
                key, to = value.groups()
            elif dtype:
                like = dtype.group(2) or dtype.group(3)
                key, to = dtype.group(1), settings.get(like, dtypes[like])
            else:
                self.assertTrue(strategy, done.stderr)
                key, to = "strategy", strategy.group(1)
            self.assertNotEqual(settings.get(key), to, done.stderr)
            settings[key] = to
        self.fail(f"hints lead nowhere: {settings}")

    def test_hints_lead_from_a_config_of_nanotron_to_any_other_strategy(self):
        config = TESTS.parent / "jobs" / "nanotron-tinystories-tp4.yaml"
        for row in json.loads(run("list", "strategies", "--format", "json").stdout):
            if row["name"].startswith("gradcache"):
                continue  # is for other networks
            with self.subTest(strategy=row["name"]):
                settings = self.follow(config, {"strategy": row["name"], "layout.dp": "4"})
                if row["name"].startswith("fsdp") or row["name"] == "deepspeed-zero3":
                    self.assertLessEqual(set(settings), {"strategy", "layout.dp", "precision.accumulate", "sync.when"})

    def test_a_bucket_is_told_in_the_units_of_its_system(self):
        error = self.refusal("strategy=deepspeed-zero1", "sync.bucket_bytes=1MiB")
        self.assertIn("its own: sync.bucket_elements", error)
        self.assertNotIn("its own", self.refusal("strategy=ddp-last", "shard.params=true"))

    def test_fsdp1_speaks_of_no_sync_only_where_it_is_used(self):
        every = self.refusal("strategy=fsdp1", "precision.accumulate=fp32")
        self.assertIn("precision.accumulate: FSDP adds reduced shards up", every)
        self.assertNotIn("no_sync", every)
        self.assertIn("no_sync", self.refusal("strategy=fsdp1-no-sync", "precision.accumulate=fp32"))

    def test_a_schedule_without_a_pipeline_has_no_effect(self):
        plain = {"option-without-effect": "leave schedule out, or raise layout.pp"}
        self.assertEqual(self.lints("strategy=ddp-last", "schedule=gpipe"), plain)
        self.assertNotIn("option-without-effect", self.lints("strategy=nanotron", "schedule=gpipe", "layout.pp=2"))
        config = TESTS.parent / "jobs" / "nanotron-tinystories-tp4.yaml"
        with tempfile.TemporaryDirectory() as folder:
            for engine in ("1f1b", "afab", "null"):  # all of which published configs say without a pipeline
                job = pathlib.Path(folder) / "job.yaml"
                job.write_text(config.read_text().replace("pp_engine: 1f1b", f"pp_engine: {engine}"))
                report = json.loads(run("predict", job, "--format", "json").stdout)
                self.assertEqual([lint["id"] for lint in report["lints"]], [], engine)

    def test_every_mistake_at_the_command_line_has_a_way_out(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "step.trace"
            self.assertEqual(run("predict", JOB, "--trace", trace, "--exit-zero").returncode, 0)
            whole = trace.read_bytes()
            cut = pathlib.Path(folder) / "cut.trace"
            calls = [["predict", JOB, "--steps", "0"], ["report", *[trace] * 9]] + [["report", cut]] * 2
            for call, length in zip(calls, (0, 0, 20, 40)):  # a file that is cut in its first frame holds no trace
                cut.write_bytes(whole[:length])
                with self.subTest(call=call[:2], length=length):
                    done = run(*call)
                    self.assertEqual(done.returncode, 2)
                    self.assertIn("hint: ", done.stderr)


if __name__ == "__main__":
    unittest.main()
