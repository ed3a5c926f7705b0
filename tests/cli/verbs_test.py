# SPDX-License-Identifier: Apache-2.0
"""The verbs job, list and doctor, and what every verb has in common, seen from outside."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest

from tidemark import PROGRAM, run

JOBS = pathlib.Path(__file__).resolve().parent.parent / "jobs"


def output(*arguments):
    done = run(*arguments)
    if done.returncode != 0:
        raise AssertionError(f"{arguments}: {done.returncode}: {done.stderr}")
    return done.stdout


def without_sources(yaml):
    return re.sub(r"\s+#.*", "", yaml)


class FirstSteps(unittest.TestCase):
    """Megatron's first step makes what later steps find: with this micro batch a steady step fits 40 GiB, the first does not."""

    JOB = (JOBS / "gpt2-ddp.yaml", "--set", "strategy=megatron", "--set", "micro_batch_size=48")

    def lints(self, *arguments):
        done = run("predict", *self.JOB, "--format", "json", *arguments)
        prediction = json.loads(done.stdout)
        return prediction["fits"], [lint["id"] for lint in prediction["lints"]]

    def test_a_steady_step_that_fits_is_not_the_whole_answer(self):
        self.assertEqual(self.lints("--step", "steady"), (True, []))
        self.assertFalse(self.lints("--steps", "2")[0])
        fits, lints = self.lints()
        self.assertTrue(fits)
        self.assertIn("first-steps-do-not-fit", lints)


class Help(unittest.TestCase):
    def test_every_verb_has_examples_that_name_it(self):
        verbs = re.findall(r"^  ([a-z]+)  ", output("--help").split("Subcommands:")[1], re.MULTILINE)
        self.assertLessEqual({"job", "list", "doctor"}, set(verbs))
        for verb in verbs:
            text = output(verb, "--help")
            self.assertIn("Examples:", text)
            self.assertIn(f"tidemark {verb} ", text.split("Examples:")[1])

    def test_an_empty_value_is_no_value(self):
        for option in ("--trace", "--html", "--capacity"):
            done = run("predict", JOBS / "gpt2-ddp.yaml", option, "")
            self.assertEqual(done.returncode, 2, option)
            self.assertIn(f"{option}: expected a value, found an empty one", done.stderr)

    def test_the_version_is_one_line(self):
        self.assertRegex(output("--version"), r"^tidemark \d+\.\d+\.\d+\n$")


class Lists(unittest.TestCase):
    def test_json_is_an_array_of_names_and_summaries(self):
        for what in ("strategies", "networks", "machines", "formats"):
            for entry in json.loads(output("list", what, "--format", "json")):
                self.assertEqual(set(entry), {"name", "summary"})
                self.assertTrue(entry["summary"])

    def test_there_is_what_is_promised(self):
        names = lambda what: {entry["name"] for entry in json.loads(output("list", what, "--format", "json"))}
        self.assertLessEqual({"ddp-every", "ddp-last", "fsdp2-scatter-each", "fsdp2-defer", "nanotron"}, names("strategies"))
        self.assertLessEqual({"llama-3-8b", "llama-3-70b", "llama-3.1-405b", "gpt2", "qwen2-7b"}, names("networks"))
        self.assertLessEqual({"cpu", "v100-sxm-32gb", "a100-pcie-80gb", "h100-sxm-80gb", "l40s-48gb"}, names("machines"))
        self.assertLessEqual({"huggingface", "nanotron", "tidemark", "perfetto", "csv", "jsonl", "chrome", "nsys", "torch-snapshot"},
                             names("formats"))

    def test_all_formats_tell_the_same(self):
        entries = json.loads(output("list", "machines", "--format", "json"))
        text, markdown = output("list", "machines"), output("list", "machines", "--format", "markdown")
        self.assertEqual(len(text.splitlines()), len(entries))
        self.assertEqual(len(markdown.splitlines()), len(entries) + 2)


class Doctor(unittest.TestCase):
    def test_says_what_there_is_and_succeeds(self):
        found = json.loads(output("doctor", "--format", "json"))
        self.assertGreaterEqual(found["cores"], 1)
        self.assertGreater(found["memory_bytes"], 2**28)
        self.assertIn("cores", output("doctor"))

    def test_fails_with_3_only_for_what_was_asked_for_and_is_missing(self):
        found = json.loads(output("doctor", "--format", "json"))
        self.assertEqual(run("doctor", "--require", "cuda").returncode, 0 if found["gpus"] else 3)
        self.assertEqual(run("doctor", "--require", "mpi").returncode, 0 if found["mpirun"] else 3)


# What samples of other tools leave open.
OPEN = ("network=llama-3-8b", "sequence_length=4096", "layout.dp=8", "micro_batch_size=1", "accumulation_steps=8",
        "precision.params=bf16")
SAID = {"accelerate-fsdp2.yaml": OPEN, "deepspeed-zero2.json": OPEN[:3], "deepspeed-zero3-auto.json": OPEN,
        "axolotl-full.yaml": OPEN[2:3], "llama-factory-full-sft.yaml": OPEN[2:3], "torchtitan-saved-llama3-8b.json": OPEN[2:3],
        "torchtitan-saved-deepseek-v3-16b.json": OPEN[2:3], "torchtitan-saved-deepseek-v3-671b-5-layers.json": OPEN[2:3],
        "torchtitan-saved-qwen3-0.6b.json": OPEN[2:3], "torchtitan-saved-qwen3-30b-a3b.json": OPEN[2:3], "transformers-sft.yaml": OPEN[2:3]}


def samples():
    """Every sample with the options that it wants."""
    return [(path, [word for change in SAID.get(path.name, ()) for word in ("--set", change)]) for path in sorted(JOBS.iterdir())]


class Jobs(unittest.TestCase):
    def test_every_sample_job_resolves_and_its_output_resolves_to_itself(self):
        self.assertGreaterEqual(len(samples()), 12)
        with tempfile.TemporaryDirectory() as folder:
            for sample, options in samples():
                first = output("job", sample, *options)
                again = pathlib.Path(folder) / "resolved.yaml"
                again.write_text(first)
                self.assertEqual(without_sources(output("job", again)), without_sources(first), sample)

    def test_the_printed_job_is_predicted_like_the_job(self):
        with tempfile.TemporaryDirectory() as folder:
            for sample, options in samples():
                again = pathlib.Path(folder) / "resolved.yaml"
                again.write_text(output("job", sample, *options))
                predictions = [output("predict", *job, "--exit-zero", "--format", "json")
                               for job in ((sample, *options), (again,))]
                self.assertEqual(predictions[0], predictions[1], sample)

    def test_the_same_job_gives_the_same_bytes(self):
        self.assertEqual(output("job", JOBS / "oracle.yaml"), output("job", JOBS / "oracle.yaml"))

    def test_a_hugging_face_config_becomes_a_job_with_the_rest_from_the_command_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "config.json"
            path.write_text('{"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257}')
            yaml = output("job", path, "--set", "machine=cpu", "--set", "strategy=ddp-last", "--set", "sequence_length=128")
            self.assertIn("layers: 12", yaml)

    def test_a_job_may_come_through_a_pipe(self):
        done = subprocess.run(["sh", "-c", f'cat "{JOBS}/oracle.yaml" | "{PROGRAM}" job /dev/stdin'], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
