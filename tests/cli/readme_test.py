#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What README.md shows is what the program prints: every console block is run again. A line of three dots stands for
lines left out."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*arguments):
    return subprocess.run([os.environ["TIDEMARK_PROGRAM"], *arguments], cwd=ROOT, check=False, capture_output=True, text=True)


class Readme(unittest.TestCase):
    def test_every_console_block_reproduces(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        blocks = re.findall(r"```text\n\$ build/tidemark ([^\n]*)\n(.*?)```", text, re.DOTALL)
        self.assertGreaterEqual(len(blocks), 1)
        for arguments, shown in blocks:
            printed = subprocess.run(["sh", "-c", f'"$TIDEMARK_PROGRAM" {arguments}'], cwd=ROOT, check=False,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
            at = 0
            for part in re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE):
                found = printed.find(part.strip(), at)
                self.assertGreaterEqual(found, 0, f"'tidemark {arguments}' no longer prints:\n{part}")
                at = found

    def test_the_way_to_perfetto_reproduces(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        section = text[text.index("## Open it in Perfetto"):].split("\n## ")[0]
        lines = re.findall(r"^    (?:tidemark (.*)|    (.*))$", section, re.MULTILINE)
        self.assertEqual([bool(command) for command, _ in lines], [True, True, False])
        with tempfile.TemporaryDirectory() as folder:
            for command, shown in lines:
                if command:
                    done = subprocess.run([os.environ["TIDEMARK_PROGRAM"], *command.replace("tests/", f"{ROOT}/tests/").split()],
                                          cwd=folder, check=True, capture_output=True, text=True)
                else:
                    self.assertEqual(done.stderr, shown + "\n")

    def test_the_table_of_strategies_reproduces(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        number = r"([\d.]+)"
        rows = re.findall(rf"\| `([\w-]+)` \| (\d+) \| {number} \| {number} \| (yes|no) \| {number} s \| {number} GiB \|", text)
        self.assertGreaterEqual(len(rows), 5)
        for strategy, microbatches, tensors, reserved, fits, step, sent in rows:
            printed = json.loads(subprocess.run(
                [os.environ["TIDEMARK_PROGRAM"], "predict", "tests/jobs/llama-3-8b-fsdp2.yaml", "--exit-zero",
                 "--set", f"strategy={strategy}", "--set", f"accumulation_steps={microbatches}", "--format", "json"],
                cwd=ROOT, check=True, capture_output=True, text=True).stdout)
            wire = sum(row["wire_bytes"] for row in printed["communication"])
            self.assertEqual(
                (f"{printed['peak']['allocated_bytes'] / 2**30:.1f}", f"{printed['peak']['reserved_bytes'] / 2**30:.1f}",
                 "yes" if printed["fits"] else "no", f"{printed['time']['step_ns'] / 1e9:.2f}", f"{wire / 2**30:.0f}"),
                (tensors, reserved, fits, step, sent), f"{strategy} {microbatches}")

    def test_the_table_of_streams_that_lag_reproduces(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        number = r"([\d.]+)"
        rows = re.findall(rf"^\| `([\w-]+)` \| {number} \| {number} \| {number} \|$", text, re.MULTILINE)
        self.assertEqual(len(rows), 2)
        for strategy, *shown in rows:
            peak = json.loads(run("predict", "tests/jobs/llama-3-8b-fsdp2.yaml", "--exit-zero", "--set", f"strategy={strategy}",
                                  "--format", "json").stdout)["peak"]
            told = [f"{peak[key] / 2**30:.1f}" for key in ("allocated_bytes", "reserved_bytes", "reserved_late_bytes")]
            self.assertEqual(told, shown, strategy)

    def test_the_table_of_optimizer_steps_reproduces(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        rows = re.findall(r"\| `((?:kernel|clip_norm|in_backward)=[\w.-]+)` \| ([\d.]+) \| (\w+) \|", text)
        self.assertEqual(len(rows), 5)
        for setting, tensors, phase in rows:
            printed = json.loads(subprocess.run(
                [os.environ["TIDEMARK_PROGRAM"], "predict", "tests/jobs/llama-3-8b-fsdp2.yaml", "--exit-zero",
                 "--set", "strategy=ddp-last", "--set", "layout.dp=1", "--set", "sequence_length=2048",
                 "--set", "accumulation_steps=1", "--set", f"optimizer_step.{setting}", "--format", "json"],
                cwd=ROOT, check=True, capture_output=True, text=True).stdout)
            peak = printed["peak"]
            self.assertEqual((f"{peak['allocated_bytes'] / 2**30:.1f}", peak["at"]["phase"]), (tensors, phase), setting)

    def test_the_table_of_allocators_reproduces(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        rows = re.findall(r"\| `(\w+=[\w -]+)` \| ([\d.]+) \| ([\d.]+) \|\n", text)
        self.assertEqual(len(rows), 8)
        for setting, reserved, minimum in rows:
            printed = json.loads(subprocess.run(
                [os.environ["TIDEMARK_PROGRAM"], "predict", "tests/jobs/gpt2-ddp.yaml",
                 "--set", f"allocator.{setting}", "--format", "json"],
                cwd=ROOT, check=True, capture_output=True, text=True).stdout)
            peak = printed["peak"]
            self.assertEqual((f"{peak['reserved_bytes'] / 2**30:.2f}", f"{peak['minimum_bytes'] / 2**30:.2f}"),
                             (reserved, minimum), setting)

    def test_the_table_of_offloaded_optimizers_reproduces(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        number = r"([\d.]+)"
        rows = re.findall(rf"\| `([\w-]+)` \| {number} \| {number} \| {number} \| {number} \| {number} \|", text)
        self.assertEqual(len(rows), 3)
        for strategy, tensors, tensors_before, host, step, step_before in rows:
            for offload, expected in (("true", (tensors, host, step)), ("false", (tensors_before, "0.0", step_before))):
                printed = json.loads(subprocess.run(
                    [os.environ["TIDEMARK_PROGRAM"], "predict", "tests/jobs/llama-3-8b-fsdp2.yaml", "--exit-zero", "--set",
                     f"strategy={strategy}", "--set", f"optimizer_step.offload={offload}", "--format", "json"],
                    cwd=ROOT, check=True, capture_output=True, text=True).stdout)
                peak = printed["peak"]
                self.assertEqual((f"{peak['allocated_bytes'] / 2**30:.1f}", f"{peak['host_bytes'] / 2**30:.1f}",
                                  f"{printed['time']['step_ns'] / 1e9:.2f}"), expected, f"{strategy} {offload}")

    def test_the_table_of_schedules_reproduces(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        number = r"([\d.]+)"
        rows = re.findall(rf"\| `([\w-]+)` \| [^|]* \| {number} \| {number} \| {number} s \| {number} ms \|", text)
        self.assertGreaterEqual(len(rows), 6)
        for schedule, first, last, step, bubble in rows:
            printed = json.loads(subprocess.run(
                [os.environ["TIDEMARK_PROGRAM"], "predict", "tests/jobs/llama-3-70b-tp8-pp4.yaml", "--exit-zero",
                 "--set", "strategy=megatron", "--set", "accumulation_steps=16", "--set", f"schedule={schedule}",
                 "--set", f"layout.vpp={2 if schedule == 'interleaved' else 1}", "--format", "json"],
                cwd=ROOT, check=True, capture_output=True, text=True).stdout)
            peaks = [f"{role['allocated_bytes'] / 2**30:.1f}" for role in printed["roles"]]
            self.assertEqual(
                (peaks[0], peaks[-1], f"{printed['time']['step_ns'] / 1e9:.2f}", f"{printed['time']['bubble_ns'] / 1e6:.0f}"),
                (first, last, step, bubble), schedule)

    def test_every_strategy_is_found_by_what_users_write_and_its_settings_are_accepted(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        table = text[text.index("| your code or config says |"):]
        rows = [row.split(" | ") for row in table[:table.index("\n\n")].splitlines()[2:]]
        known = json.loads(run("list", "strategies", "--format", "json").stdout)
        named = set()
        for said, strategies, settings in rows:
            for strategy in re.findall(r"`([\w-]+)`", strategies):
                named.add(strategy)
                job = "gradcache-bert-base" if strategy.startswith("gradcache") else "llama-3-8b-fsdp2"
                arguments = [f"strategy={strategy}"] + re.findall(r"`([^`]+)`", settings.replace("=R`", "=2`"))
                done = run("job", f"tests/jobs/{job}.yaml", *(word for key in arguments for word in ("--set", key)))
                self.assertEqual(done.returncode, 0, f"{said}: {done.stderr}")
        self.assertEqual(named, {entry["name"] for entry in known})

    def test_the_table_of_recomputation_reproduces(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        number = r"([\d.]+)"
        rows = re.findall(rf"\| `(recompute\.policy[^`]*)` \| [^|]* \| {number} \| {number} s \| {number} ms \|", text)
        self.assertGreaterEqual(len(rows), 7)
        for settings, peak, step, repeated in rows:
            printed = json.loads(subprocess.run(
                [os.environ["TIDEMARK_PROGRAM"], "predict", "tests/jobs/llama-3-70b-tp8-pp4.yaml", "--exit-zero",
                 "--format", "json", *(f"--set={setting}" for setting in settings.split())],
                cwd=ROOT, check=True, capture_output=True, text=True).stdout)
            time = printed["time"]
            self.assertEqual(
                (f"{printed['roles'][0]['allocated_bytes'] / 2**30:.1f}", f"{time['step_ns'] / 1e9:.2f}",
                 f"{time['recompute_ns'] / 1e6:.0f}"), (peak, step, repeated), settings)

    def test_the_table_of_losses_reproduces(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        rows = re.findall(r"\| `([\w-]+)` \| [^|]* \| (\d+ [nc]V) \| ([\d.]+) \| ([\d.]+) s \|", text)
        listed = json.loads(subprocess.run([os.environ["TIDEMARK_PROGRAM"], "list", "losses", "--format", "json"],
                                           check=True, capture_output=True, text=True).stdout)
        self.assertEqual([loss for loss, *_ in rows], [loss["name"] for loss in listed])
        for (loss, logits, tensors, step), known in zip(rows, listed):
            printed = json.loads(subprocess.run(
                [os.environ["TIDEMARK_PROGRAM"], "predict", "tests/jobs/llama-3-8b-fsdp2.yaml", "--exit-zero",
                 "--set", f"loss={loss}", "--format", "json"], cwd=ROOT, check=True, capture_output=True, text=True).stdout)
            self.assertIn(logits, known["summary"])
            self.assertEqual((f"{printed['peak']['allocated_bytes'] / 2**30:.1f}", f"{printed['time']['step_ns'] / 1e9:.2f}"),
                             (tensors, step), loss)


if __name__ == "__main__":
    unittest.main()
