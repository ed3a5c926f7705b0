#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What README.md and docs/*.md show is what the program prints: every console block is run again, every table is asked for
again, and every link leads somewhere. In a block, a line of three dots stands for lines left out."""

import json
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

from tidemark import run

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]
NUMBER = r"([\d.]+)"
BLOCK = re.compile(r"```text\n\$ build/tidemark ([^\n]*)\n(.*?)```", re.DOTALL)


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def section(page, heading):
    """What stands below a heading, up to the next one."""
    return read(page).split(f"\n## {heading}\n")[1].split("\n## ")[0]


def output_of(*arguments):
    done = run(*arguments, "--format", "json", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def predicted(job, *settings):
    return output_of("predict", f"tests/jobs/{job}.yaml", "--exit-zero", *(f"--set={setting}" for setting in settings))


def gib(n_bytes, digits=1):
    return f"{n_bytes / 2**30:.{digits}f}"


def seconds(time_ns):
    return f"{time_ns / 1e9:.2f}"


def milliseconds(time_ns):
    return f"{time_ns / 1e6:.0f}"


class Consoles(unittest.TestCase):
    def assert_shows(self, shown, printed, command):
        at = 0
        for part in re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE):
            found = printed.find(part.strip(), at)
            self.assertGreaterEqual(found, 0, f"'{command}' no longer prints:\n{part}")
            at = found + len(part.strip())

    def test_every_console_block_reproduces(self):
        blocks = [(page, *block) for page in PAGES for block in BLOCK.findall(read(page))]
        self.assertEqual({page for page, *_ in blocks}, {"README.md", "docs/configs.md", "docs/memory.md", "docs/run.md", "docs/search.md",
                                                         "docs/strategies.md", "docs/traces.md"})
        self.assertGreaterEqual(len(blocks), 15)
        for page, arguments, shown in blocks:
            with self.subTest(page=page, arguments=arguments):
                printed = run(*shlex.split(arguments), cwd=ROOT, capture_output=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT).stdout
                self.assert_shows(shown, printed, f"tidemark {arguments}")

    def test_the_recorded_steps_of_a_gpu_reproduce(self):
        (command, shown), = re.findall(r"```text\n\$ (tests/[^\n]*)\n(.*?)```", read("docs/gpu.md"), re.DOTALL)
        done = subprocess.run(shlex.split(command), cwd=ROOT, check=True, capture_output=True, text=True, timeout=60)
        self.assert_shows(shown, done.stdout, command)

    def test_the_way_to_perfetto_reproduces(self):
        lines = re.findall(r"^    (?:tidemark (.*)|    (.*))$", section("docs/traces.md", "Open it in Perfetto"), re.MULTILINE)
        self.assertEqual([bool(command) for command, _ in lines], [True, True, False])
        with tempfile.TemporaryDirectory() as folder:
            for command, shown in lines:
                if command:
                    done = run(*command.replace("tests/", f"{ROOT}/tests/").split(), cwd=folder)
                    self.assertEqual(done.returncode, 0, done.stderr)
                else:
                    self.assertEqual(done.stderr, shown + "\n")


class Tables(unittest.TestCase):
    def assert_strategies_reproduce(self, text, count):
        rows = re.findall(rf"^\| `([\w-]+)` \| (\d+) \| {NUMBER} \| {NUMBER} \| (yes|no) \| {NUMBER} s \| {NUMBER} GiB \|$",
                          text, re.MULTILINE)
        self.assertEqual(len(rows), count)
        for strategy, microbatches, *shown in rows:
            with self.subTest(strategy=strategy, microbatches=microbatches):
                told = predicted("llama-3-8b-fsdp2", f"strategy={strategy}", f"accumulation_steps={microbatches}")
                wire = sum(row["wire_bytes"] for row in told["communication"])
                self.assertEqual([gib(told["peak"]["allocated_bytes"]), gib(told["peak"]["reserved_bytes"]),
                                  "yes" if told["fits"] else "no", seconds(told["time"]["step_ns"]), gib(wire, 0)], shown)

    def test_the_table_of_deferred_synchronisation_reproduces(self):
        self.assert_strategies_reproduce(read("README.md"), 7)

    def test_the_table_of_one_job_under_every_framework_reproduces(self):
        self.assert_strategies_reproduce(section("docs/strategies.md", "One job under every framework"), 19)

    def test_every_strategy_is_found_by_what_users_write_and_its_settings_are_accepted(self):
        text = read("docs/strategies.md")
        table = text[text.index("| your code or config says |"):]
        rows = [row.split(" | ") for row in table[:table.index("\n\n")].splitlines()[2:]]
        named = set()
        for said, strategies, settings in rows:
            for strategy in re.findall(r"`([\w-]+)`", strategies):
                named.add(strategy)
                job = "gradcache-bert-base" if strategy.startswith("gradcache") else "llama-3-8b-fsdp2"
                keys = [f"strategy={strategy}", *re.findall(r"`([^`]+)`", settings.replace("=R`", "=2`"))]
                done = run("job", f"tests/jobs/{job}.yaml", *(f"--set={key}" for key in keys), cwd=ROOT)
                self.assertEqual(done.returncode, 0, f"{said}: {done.stderr}")
        self.assertEqual(named, {entry["name"] for entry in output_of("list", "strategies")})

    def test_the_table_of_contrastive_losses_reproduces(self):
        rows = re.findall(rf"\| `(strategy=[^`]*)` \| {NUMBER} GiB \| {NUMBER} ms \|", read("docs/strategies.md"))
        self.assertEqual(len(rows), 3)
        for settings, *shown in rows:
            told = predicted("gradcache-bert-base", *settings.split())
            self.assertEqual([f"{told['peak']['allocated_bytes'] / 2**30:.3g}", milliseconds(told["time"]["step_ns"])], shown,
                             settings)

    def test_the_table_of_streams_that_lag_reproduces(self):
        rows = re.findall(rf"^\| `([\w-]+)` \| {NUMBER} \| {NUMBER} \| {NUMBER} \|$",
                          section("docs/memory.md", "Streams that lag"), re.MULTILINE)
        self.assertEqual(len(rows), 2)
        for strategy, *shown in rows:
            peak = predicted("llama-3-8b-fsdp2", f"strategy={strategy}")["peak"]
            told = [gib(peak[key]) for key in ("allocated_bytes", "reserved_bytes", "reserved_late_bytes")]
            self.assertEqual(told, shown, strategy)

    def test_the_table_of_optimizer_steps_reproduces(self):
        rows = re.findall(rf"\| `((?:kernel|clip_norm|in_backward)=[\w.-]+)` \| {NUMBER} \| (\w+) \|",
                          section("docs/memory.md", "The optimizer step"))
        self.assertEqual(len(rows), 5)
        for setting, *shown in rows:
            peak = predicted("llama-3-8b-fsdp2", "strategy=ddp-last", "layout.dp=1", "sequence_length=2048",
                             "accumulation_steps=1", f"optimizer_step.{setting}")["peak"]
            self.assertEqual([gib(peak["allocated_bytes"]), peak["at"]["phase"]], shown, setting)

    def test_the_table_of_allocators_reproduces(self):
        rows = re.findall(rf"\| `(\w+=[\w -]+)` \| {NUMBER} \| {NUMBER} \|\n", section("docs/memory.md", "Allocators"))
        self.assertEqual(len(rows), 8)
        for setting, *shown in rows:
            peak = predicted("gpt2-ddp", f"allocator.{setting}")["peak"]
            self.assertEqual([gib(peak["reserved_bytes"], 2), gib(peak["minimum_bytes"], 2)], shown, setting)

    def test_the_table_of_offloaded_optimizers_reproduces(self):
        rows = re.findall(rf"\| `([\w-]+)` \| {NUMBER} \| {NUMBER} \| {NUMBER} \| {NUMBER} \| {NUMBER} \|",
                          section("docs/memory.md", "Offloaded optimizers"))
        self.assertEqual(len(rows), 6)
        for strategy, tensors, tensors_before, host, step, step_before in rows:
            for offload, shown in (("true", (tensors, host, step)), ("false", (tensors_before, "0.0", step_before))):
                told = predicted("llama-3-8b-fsdp2", f"strategy={strategy}", f"optimizer_step.offload={offload}")
                self.assertEqual((gib(told["peak"]["allocated_bytes"]), gib(told["peak"]["host_bytes"]),
                                  seconds(told["time"]["step_ns"])), shown, f"{strategy} {offload}")

    def test_the_table_of_schedules_reproduces(self):
        rows = re.findall(rf"\| `([\w-]+)` \| [^|]* \| {NUMBER} \| {NUMBER} \| {NUMBER} s \| {NUMBER} ms \|",
                          section("docs/memory.md", "Pipeline schedules"))
        self.assertEqual(len(rows), 6)
        for schedule, *shown in rows:
            told = predicted("llama-3-70b-tp8-pp4", "strategy=megatron", "accumulation_steps=16", f"schedule={schedule}",
                             f"layout.vpp={2 if schedule == 'interleaved' else 1}")
            peaks = [gib(role["allocated_bytes"]) for role in told["roles"]]
            self.assertEqual([peaks[0], peaks[-1], seconds(told["time"]["step_ns"]), milliseconds(told["time"]["bubble_ns"])],
                             shown, schedule)

    def test_the_table_of_recomputation_reproduces(self):
        rows = re.findall(rf"\| `(recompute\.policy[^`]*)` \| [^|]* \| {NUMBER} \| {NUMBER} s \| {NUMBER} ms \|",
                          section("docs/memory.md", "Recomputation"))
        self.assertEqual(len(rows), 8)
        for settings, *shown in rows:
            told = predicted("llama-3-70b-tp8-pp4", *settings.split())
            self.assertEqual([gib(told["roles"][0]["allocated_bytes"]), seconds(told["time"]["step_ns"]),
                              milliseconds(told["time"]["recompute_ns"])], shown, settings)

    def test_the_table_of_losses_reproduces(self):
        rows = re.findall(rf"\| `([\w-]+)` \| [^|]* \| (\d+ [nc]V) \| {NUMBER} \| {NUMBER} s \|",
                          section("docs/memory.md", "Logits and the loss"))
        listed = output_of("list", "losses")
        self.assertEqual([loss for loss, *_ in rows], [loss["name"] for loss in listed])
        for (loss, logits, *shown), known in zip(rows, listed):
            told = predicted("llama-3-8b-fsdp2", f"loss={loss}")
            self.assertIn(logits, known["summary"])
            self.assertEqual([gib(told["peak"]["allocated_bytes"]), seconds(told["time"]["step_ns"])], shown, loss)


def prose(page):
    """A page without its blocks of code, in which nothing is a heading or a link."""
    return re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL)


def anchors(page):
    """By GitHub's rule: small letters, hyphens for spaces, no punctuation, a number where a heading stands twice."""
    found = []
    for heading in re.findall(r"^#{1,6} (.+)$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        again = sum(1 for other in found if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", other))
        found.append(f"{slug}-{again}" if again else slug)
    return found


def links(page):
    """(file from the root, anchor) of each relative link and picture; an anchor alone is one of the page itself."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)"', text):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            full = (ROOT / page).parent / path if path else ROOT / page
            yield full.resolve(), anchor


class Links(unittest.TestCase):
    def test_every_link_leads_to_a_file_and_a_heading(self):
        for page in [*PAGES, "CONTRIBUTING.md"]:
            for path, anchor in links(page):
                with self.subTest(page=page, path=path, anchor=anchor):
                    self.assertTrue(path.exists())
                    self.assertTrue(path.is_relative_to(ROOT))
                    if anchor:
                        self.assertIn(anchor, anchors(path.relative_to(ROOT)))

    def test_every_page_is_reached_from_readme(self):
        reached, next_ones = set(), ["README.md"]
        while next_ones:
            page = next_ones.pop()
            reached.add(page)
            found = {str(path.relative_to(ROOT)) for path, _ in links(page) if path.suffix == ".md"}
            next_ones.extend(found - reached)
        self.assertEqual(set(PAGES) - reached, set())

    def test_anchors_follow_the_rule(self):
        self.assertIn("does-no_sync-save-memory", anchors("docs/memory.md"))  # "Does `no_sync` save memory?"


if __name__ == "__main__":
    unittest.main()
