# SPDX-License-Identifier: Apache-2.0
"""The verb run, and compare JOB --device cpu, from outside: real ranks under mpirun, real arithmetic, and memory that is
what was predicted, to the byte."""

import json
import math
import os
import pathlib
import re
import unittest

from executed_job import ExecutedJob, call

JOBS = pathlib.Path(__file__).resolve().parents[1] / "jobs"
STRATEGIES = ("ddp-every", "ddp-last", "ddp-forward-outside", "colossalai-ddp", "single-backward", "nanotron", "nanotron shard.optimizer=true", "megatron",
              "fsdp2-scatter-each", "fsdp2-defer", "fsdp2-keep-after-backward", "fsdp2-keep-all",
              "jax-scan", "jax-scan-stacked", "jax-multisteps", "alpa", "alpa-style1", "alpa-style2", "alpa-zero2",
              "fsdp1", "fsdp1-no-sync", "colossalai-zero1", "colossalai-zero2", "megatron-dist-opt",
              "colossalai-gemini shard.chunk_elements=20000",  # in one small chunk that is kept it is wrong on purpose
              "deepspeed-zero0", "deepspeed-bf16",             # of the others the bucket has 5e8 elements whatever the model
              "deepspeed-zero1 sync.bucket_elements=20000", "deepspeed-zero2 sync.bucket_elements=20000",
              "hsdp shard.replicas=2", "deepspeed-coalesce sync.bucket_elements=20000", "deepspeed-zero3 sync.bucket_elements=20000")


def setting(strategy):
    """The changes that choose one of STRATEGIES."""
    return f"strategy={strategy}".split()


class Run(ExecutedJob):
    def test_two_ranks_start_by_themselves_and_say_so(self):
        done = call("run", self.job, "--steps", "3", "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("starting 2 ranks with mpirun", done.stderr)
        run = json.loads(done.stdout)
        self.assertEqual((run["schema"], run["device"], run["ranks"], len(run["steps"])), ("tidemark.run/1", "cpu", 2, 3))
        self.assertAlmostEqual(run["steps"][0]["loss"], math.log(256), delta=0.1)  # it knows nothing yet
        self.assertEqual(run["numerics"]["parameters_changed_at"], [1])
        self.assertEqual((run["clock"], run["notes"]), ("host", []))
        self.assertIsNone(run["out_of_memory"])

    def test_gradients_are_those_of_one_big_batch_and_memory_is_what_was_predicted(self):
        for strategy in STRATEGIES:
            self.assert_executed(*setting(strategy), "layout.dp=4", steps=3)

    def test_settings_of_ddp_change_neither_gradients_nor_memory_that_was_predicted(self):
        for strategy in ("ddp-every", "ddp-last"):
            for changes in (("buffers.gradient_as_bucket_view=true", "sync.static_graph=true"),
                            ("sync.find_unused_parameters=true", "buffers.set_to_none=false")):
                self.assert_executed(f"strategy={strategy}", *changes, steps=4)

    def test_layers_that_keep_their_weights_are_the_same_layers(self):
        """Some of them or all; with masks that are drawn by an operation's name, and with work that is done again."""
        kept = "shard.gathered_layers=1"
        for changes in ((kept,), ("shard.gathered_layers=9",), (kept, "network.dropout=0.1"), (kept, "recompute.policy=full"),
                        (kept, "layout.tp=2", "network.kv_heads=4")):
            self.assert_executed("strategy=fsdp2-scatter-each", *changes, steps=2)

    def test_what_finds_no_room_on_this_machine_is_refused_before_it_runs(self):
        """DeepSpeed's bucket has the elements that it is given, whatever the network: of 2 bytes, of 8 in fp64."""
        def needed(elements, *words):
            done = call("run", self.job, *words,
                        changes=("strategy=deepspeed-zero2", "layout.dp=1", f"sync.bucket_elements={elements}"))
            self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
            said = re.search(r"the job's ranks \(1\) need ([0-9.]+) ([KMGT]iB) for their tensors(.*), and this machine has "
                             r"([0-9.]+) ([KMGT]iB) to spare", done.stderr)
            self.assertIsNotNone(said, done.stderr)
            number, unit, what, spare, spare_unit = said.groups()
            size = lambda number, unit: float(number) * 1024 ** (1 + "KMGT".index(unit[0]))
            return size(number, unit), what, size(spare, spare_unit)
        need, what, spare = needed(10**13)
        self.assertAlmostEqual(need / 2e13, 1, delta=0.01)
        self.assertEqual(what, "")
        elements = int(spare / 6)  # a third of it; in fp64 four thirds
        need, what, _ = needed(elements, "--verify")
        self.assertAlmostEqual(need / (8 * elements), 1, delta=0.05)
        self.assertEqual(what, " and gradients where they are verified in fp64")

    def test_what_is_to_run_out_of_memory_is_not_refused_for_what_it_would_be_verified_with(self):
        done = call("run", self.job, "--verify", "--capacity", "64KiB",
                    changes=("layout.dp=1", "accumulation_steps=4096", "micro_batch_size=64", "sequence_length=4096"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("out of memory", done.stdout)

    def test_ranks_of_one_machine_look_for_no_network_unless_told(self):
        """A mpirun of ours tells what it was called with."""
        launcher = self.folder / "mpirun"
        launcher.write_text("#!/bin/sh\necho \"$@\" >&2\nexit 1\n", encoding="utf-8")
        launcher.chmod(0o755)
        path = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        path.pop("OMPI_MCA_pml", None)
        self.assertIn("--mca pml ob1", call("run", self.job, env=path).stderr)
        self.assertNotIn("ob1", call("run", self.job, env={**path, "OMPI_MCA_pml": "ucx"}).stderr)

    def test_what_mpi_cannot_do_with_its_settings_names_them(self):
        done = call("run", self.job, env={**os.environ, "OMPI_MCA_pml": "nosuch"})
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("this environment sets OMPI_MCA_pml", done.stderr)

    def test_padded_state_is_divided_between_ranks_of_unlike_size(self):
        """64 is no multiple of 3: the last rank has less of a parameter, of a bucket or of a chunk. Small buckets hold
        parameters of several layers; a part of a whole parameter is sent where there are no masters."""
        for strategy in ("colossalai-zero1 sync.bucket_elements=5000", "colossalai-zero2 network.tied_embeddings=true",
                         "colossalai-zero2 sync.bucket_elements=5000 precision.master=none precision.optimizer=bf16",
                         "nanotron shard.optimizer=true", "nanotron shard.optimizer=true network.tied_embeddings=true optimizer_step.clip_norm=0.01",
                         "megatron-dist-opt sync.overlap_gather=true buffers.attention_mask=true",
                         "megatron-dist-opt optimizer_step.clip_norm=0.01",
                         "megatron-dist-opt precision.gradients=bf16 precision.accumulate=bf16 precision.reduce=bf16 optimizer_step.clip_norm=0.01",
                         "megatron-dist-opt sync.bucket_elements=5000 buffers.fused_accumulation=false network.tied_embeddings=true",
                         "colossalai-gemini shard.chunk_elements=20001 network.tied_embeddings=true"):
            self.assert_executed(*setting(strategy), "layout.dp=3")

    def test_a_kept_chunk_counts_what_it_has_accumulated_once_for_each_rank(self):
        """On a text of one letter all microbatches are equal. The first of two counts N times: (N + 1) / 2 in place of
        1, which is (N - 1) / 2 away from the right gradient."""
        text = self.folder / "text.txt"
        text.write_text("a" * 500, encoding="utf-8")
        for ranks in (2, 4):
            done = call("run", self.job, "--set", "strategy=colossalai-gemini", "--set", f"layout.dp={ranks}", "--data", text,
                        "--verify", "--format", "json")
            self.assertEqual(done.returncode, 1, done.stderr)
            found = json.loads(done.stdout)["numerics"]["exact"]["max_relative_error"]
            self.assertAlmostEqual(found, (ranks - 1) / 2, delta=1e-9)

    def test_gradients_of_tensor_parallel_ranks_are_those_of_one_rank(self):
        """With scattered rows (sp) a rank has gradients of its own rows only, which somebody must sum: left out, the
        norms' are off by about one."""
        for strategy, sp in (("nanotron", "true"), ("nanotron", "false"), ("megatron", "true"), ("megatron", "false"),
                             ("ddp-last", "true")):
            self.assert_numbers(f"strategy={strategy}", "layout.tp=2", f"layout.sp={sp}")
        self.assert_executed("strategy=megatron", "layout.tp=2", "layout.sp=false", "network.qk_norm=true")  # of its own heads

    def test_norms_of_outputs_are_of_whole_rows_and_leave_inputs_as_they_are(self):
        for changes in (("network.norm_placement=both", "layout.tp=2", "layout.sp=true"),
                        ("network.norm_placement=outputs", "layout.tp=2", "layout.sp=false"),
                        ("network.norm_placement=outputs", "layout.pp=2", "schedule=zb-h1", "layout.tp=2", "layout.sp=true"),
                        ("network.norm_placement=outputs", "layout.pp=2", "network.qk_norm=true", "network.qk_norm_over=all-heads")):
            self.assert_executed("strategy=megatron", "layout.dp=1", *changes, steps=1)

    def test_rotations_read_the_table_that_their_layer_has(self):
        """Of every layer one, whole on each rank; rows of it for each token, or the table itself where rotation is fused."""
        apart, latent = "buffers.fused_rope=false", (
            "network.kv_heads=4", "network.head_size=16", "network.latent_attention.kv_lora_rank=24",
            "network.latent_attention.rope_head_size=6", "network.latent_attention.value_head_size=8")
        for changes in (("network.rotary_table=pairs", apart), ("network.rotary_table=elements", apart, "packing.qkv=separate"),
                        ("network.rotary_table=elements", "strategy=fsdp2-scatter-each", apart, "recompute.policy=per_op"),
                        ("network.rotary_table=pairs", "strategy=megatron", "layout.cp=2", "layout.dp=1", apart),
                        ("network.rotary_table=pairs", "strategy=megatron", "layout.pp=2", "layout.dp=1", "recompute.policy=full"),
                        ("network.rotary_table=pairs", "strategy=megatron", "layout.pp=2", "layout.dp=1", "schedule=zb-h1", apart),
                        ("network.rotary_table=elements", "strategy=megatron", "layout.tp=2", "layout.sp=true", "layout.dp=1", apart),
                        ("network.rotary_table=pairs", apart, *latent), ("network.rotary_table=elements", *latent),
                        ("network.rotary_table=pairs", apart, *latent, "recompute.policy=selective", "recompute.latent_heads=true"),
                        ("network.rotary_table=elements", "network.qkv_views=true")):
            self.assert_executed(*changes, steps=1)

    def test_updates_in_the_backward_pass_leave_its_gradients_alone(self):
        for changes in ((), ("recompute.policy=full",), ("layout.tp=2",), ("loss=chunked",)):
            within = ("strategy=ddp-last", "layout.dp=1", "accumulation_steps=1", "network.tied_embeddings=false",
                      "optimizer_step.in_backward=true", *changes)
            self.assert_executed(*within, steps=3)

    def test_weights_of_fp32_that_are_summed_in_bf16_have_the_bound_of_that(self):
        """2 ** -8 is its unit roundoff, fp32's 2 ** -24."""
        checks = {}
        for dtype in ("bf16", "fp32"):
            wide = ("strategy=nanotron", "layout.dp=1", "precision.params=fp32", "precision.gradients=fp32",
                    "precision.master=none", f"precision.accumulate={dtype}", f"precision.reduce={dtype}")
            checks[dtype] = self.json_of("run", self.job, "--verify", changes=wide)["numerics"]
        self.assertTrue(checks["bf16"]["equal"] and checks["fp32"]["equal"], checks)
        self.assertAlmostEqual(checks["bf16"]["bound"] / checks["fp32"]["bound"] / 2**16, 1, delta=0.1)
        self.assertGreater(checks["bf16"]["max_relative_error"], checks["fp32"]["bound"])  # or nothing was summed in bf16

    def test_weights_that_are_made_of_narrower_masters_have_the_bound_of_these(self):
        wide = [f"precision.{what}=fp32" for what in ("params", "gradients", "reduce", "accumulate", "optimizer")]
        changes = ("strategy=fsdp2-scatter-each", "layout.dp=2", *wide)
        checks = {dtype: self.json_of("run", self.job, "--verify", changes=(*changes, f"precision.master={dtype}"))["numerics"]
                  for dtype in ("bf16", "fp32")}
        self.assertTrue(checks["bf16"]["equal"] and checks["fp32"]["equal"], checks)
        self.assertGreater(checks["bf16"]["max_relative_error"], checks["fp32"]["bound"])  # they are rounded

    def test_ranks_add_and_gather_numbers_of_fp16(self):
        fp16 = [f"precision.{what}=fp16" for what in ("params", "gradients", "reduce", "accumulate")]
        for changes in (("strategy=deepspeed-zero0", *fp16), ("strategy=ddp-last", "layout={dp: 1, tp: 2}", *fp16),
                        ("strategy=fsdp2-scatter-each", "precision.params=fp16", "precision.gradients=fp16", "layout.dp=3")):
            self.assert_executed(*changes)

    def test_a_pool_that_is_not_safe_runs_is_noted_and_found_to_differ(self):
        changes = ("--set", "strategy=nanotron", "--set", "layout={dp: 1, tp: 2}", "--set", "buffers.tp_gather=pooled-unsafe")
        done = call("run", self.job, *changes, "--verify")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("error wrong-gradient: gathered and scattered tensors share one pooled block", done.stdout)
        self.assertRegex(done.stdout, r"in fp64: .* at layer\.\w+: the numbers differ")
        run = json.loads(call("run", self.job, *changes, "--verify", "--format", "json").stdout)
        self.assertEqual([lint["id"] for lint in run["lints"] if lint["severity"] == "error"], ["wrong-gradient"])
        self.assertFalse(run["numerics"]["exact"]["equal"])
        self.assertEqual(call("run", self.job, *changes).returncode, 0)  # whoever asks nothing is told, not stopped

    def test_sequences_of_different_lengths_are_one_batch_where_the_loss_counts_tokens(self):
        """Padded to the longest, which is what memory is of. A mean of means is none over tokens, and the job's lint says
        so."""
        lengths = "sequence_length={max: 32, mean: 20}"
        for changes in (("strategy=fsdp2-defer", "loss_scale=global-tokens"), ("strategy=jax-multisteps",),
                        ("strategy=megatron-dist-opt", "loss_scale=summed-tokens"),
                        ("strategy=megatron", "loss_scale=summed-tokens", "layout={dp: 2, pp: 2}"),
                        ("strategy=fsdp2-keep-all", "loss_scale=global-tokens", "layout={dp: 2, pp: 2}")):
            self.assert_executed(lengths, *changes)
        done = call("run", self.job, "--verify", changes=(lengths,))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("warning mean-of-means: sequences have 20 tokens on average and 32 at most", done.stdout)
        self.assertRegex(done.stdout, "in fp64: .*: the numbers differ")
        self.assertEqual(call("run", self.job, changes=(lengths,)).returncode, 0)
        done = call("run", self.job, "--verify", changes=(lengths, "strategy=ddp-every"))
        self.assertIn("warning mean-of-means", done.stdout)
        self.assertNotIn("sync-every-microbatch", done.stdout)  # which does not change any number
        done = call("compare", self.job, "--device", "cpu", changes=(lengths,))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("padded to sequence_length.max, which is what a run computes", done.stderr)

    def test_phases_take_time_where_issuing_takes_none(self):
        comparison = self.json_of("compare", self.job, "--device", "cpu",
                                  changes=("machine.host_issue=0 ns", "machine.overlap=false"))
        self.assertEqual(comparison["phase_times"], "work")
        phases = {phase["phase"]: phase for phase in comparison["phases"]}
        for side in ("predicted", "measured"):
            for phase in ("forward", "backward", "optimizer"):
                self.assertGreater(phases[phase][f"{side}_ns"], 0, (side, phase))
        whole = sum(phase["predicted_ns"] for phase in phases.values())  # streams take turns: no instant counts twice
        self.assertLessEqual(whole, comparison["predicted"]["step_ns"])

    def test_losses_in_chunks_have_the_gradients_of_all_tokens_at_once(self):
        """On two ranks, of 64 tokens of a microbatch: chunks of 24, 24 and 16."""
        for changes in (("loss=chunked",), ("loss=fused",), ("loss=chunked", "layout={dp: 1, tp: 2}"),
                        ("loss=fused", "layout={dp: 1, pp: 2}"), ("loss=fused", "strategy=fsdp2-defer"),
                        ("loss=chunked", "strategy=megatron")):
            self.assert_executed("loss_chunk_tokens=24", *changes)

    def test_own_rows_are_multiplied_beside_the_gather(self):
        changes = ("strategy=nanotron", "layout={dp: 1, tp: 2}", "buffers.tp_gather=async")
        self.assert_executed(*changes, steps=1)

    def test_gradients_are_right_with_dropout_and_where_one_is_zero(self):
        for changes in (("network.dropout=0.1",), ("network.dropout=0.1", "strategy=nanotron", "layout.tp=2"),
                        ("network.dropout=0.1", "strategy=megatron", "layout.tp=2"),
                        ("network.qkv_bias=true", "network.rope=false")):
            self.assert_numbers(*changes)

    def test_compiled_steps_have_the_right_gradients_however_their_buffers_are_given_on(self):
        """Without donation a sum is read from one array and written to another; a branch has buffers that it does not
        use."""
        for changes in (("strategy=jax-scan", "buffers.donate=false"), ("strategy=alpa", "buffers.donate=false"),
                        ("strategy=jax-multisteps", "buffers.mid_updates=true"),
                        ("strategy=alpa", "sync.executable=branch", "gradient_flow.loop=program"),
                        ("strategy=alpa-style1", "buffers.contiguous_gradients=false", "sync.bucket_bytes=20000"),
                        # parts that are not all of one size
                        ("strategy=alpa-zero2", "layout.dp=3", "network.hidden=56", "network.ffn=97"),
                        # 8 numbers in parts of 2 fill four ranks: the fifth has none of some parameters
                        ("strategy=alpa-zero2", "layout.dp=5", "network.hidden=8", "network.heads=2")):
            self.assert_executed(*changes, steps=1)

    def test_memory_is_what_was_predicted_on_two_ranks(self):
        """Of every third strategy with tensor parallelism as well."""
        for number, strategy in enumerate(STRATEGIES):
            for layout in [("layout.dp=2",)] + [("layout.dp=2", "layout.tp=2")] * (number % 3 == 0):
                self.assert_memory(*setting(strategy), *layout, steps=3)

    def test_updates_in_single_operations_have_the_temporaries_that_were_predicted(self):
        """Over lists, and tensor after tensor where the system passes that on. 3 ranks have padding in their moments; a
        first step makes moments before the temporaries."""
        kernels = ("foreach", "for-loop")
        for changes, taken in ((("layout.dp=1",), kernels), (("precision.master=fp32", "optimizer_step.clip_norm=0.5"), kernels),
                               (("optimizer=sgd-momentum",), kernels),
                               (("strategy=fsdp2-defer", "network.tied_embeddings=true", "layout.dp=3"), kernels),
                               (("strategy=fsdp1", "layout.dp=3"), kernels), (("strategy=deepspeed-zero3", "layout.dp=3", "sync.bucket_elements=20000"), kernels),
                               (("strategy=deepspeed-zero2", "layout.dp=3", "sync.bucket_elements=20000"), kernels),
                               (("strategy=colossalai-zero2", "layout.dp=3"), kernels), (("strategy=megatron-dist-opt", "layout.dp=3"), kernels[:1]),
                               (("strategy=megatron", "layout={dp: 1, pp: 2}"), kernels[:1]), (("strategy=nanotron", "layout.tp=2"), kernels[:1])):
            for kernel in taken:
                self.assert_executed(f"optimizer_step.kernel={kernel}", *changes, steps=3)

    def test_memory_is_what_was_predicted_where_work_is_done_again(self):
        for policy in ("full", "selective", "every_n", "per_op"):
            self.assert_memory("strategy=nanotron", "layout.tp=2", f"recompute.policy={policy}", steps=1)

    def test_the_demo_is_what_was_predicted(self):
        comparison = self.json_of("compare", JOBS / "demo-small.yaml", "--device", "cpu", "--steps", "2")
        self.assertEqual(comparison["peak_error_bytes"], 0)
        run = self.json_of("run", JOBS / "demo-small.yaml", "--verify")
        self.assertLess(run["numerics"]["exact"]["max_relative_error"], 1e-10)

    def test_a_text_is_learned(self):
        text = self.folder / "text.txt"
        text.write_text("the tide rises, the tide falls. " * 40, encoding="utf-8")
        run = self.json_of("run", self.job, "--set", "layout.dp=1", "--steps", "50", "--data", text)
        self.assertLess(run["steps"][-1]["loss"], run["steps"][0]["loss"] - 2)

    def test_a_trace_tells_every_rank(self):
        trace = self.folder / "measured.trace"
        self.json_of("run", self.job, "--trace", trace)
        report = self.json_of("report", trace)
        self.assertEqual(report["traces"][0]["origin"], "measured on cpu")
        told = call("compare", trace, trace).stdout
        self.assertEqual(told.count("\n  stage 0 "), 2, told)

    def test_a_device_that_is_too_small_runs_out_where_predicted(self):
        predicted = call("predict", self.job, "--set", "layout.dp=1", "--step", "first", "--capacity", "1MiB", "--format",
                         "json")
        expected = json.loads(predicted.stdout)["capacity"]
        done = call("run", self.job, "--set", "layout.dp=1", "--capacity", "1MiB", "--steps", "1", "--format", "json")
        self.assertEqual(done.returncode, 1, done.stderr)
        found = json.loads(done.stdout)["out_of_memory"]
        self.assertEqual(found["requested_bytes"], expected["request_bytes"])
        self.assertEqual(found["cache_flushes"], expected["cache_flushes"])
        place = ("phase", "microbatch", "side", "chunk", "step")
        self.assertEqual({key: found[key] for key in place}, {key: expected[key] for key in place})

    def test_the_same_seed_gives_the_same_numbers(self):
        losses = [[step["loss"] for step in self.json_of("run", self.job, "--steps", "2", "--seed", seed)["steps"]]
                  for seed in (1, 1, 2)]
        self.assertEqual(losses[0], losses[1])
        self.assertNotEqual(losses[0], losses[2])

    def test_a_launcher_with_another_number_of_ranks_is_refused(self):
        launcher = ["mpirun", "-np", "3", "--oversubscribe", "-q"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
        done = call("run", self.job, launcher=launcher)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("the job has 2 ranks, and the launcher has started 3", done.stderr)

    def test_the_last_window_of_an_epoch_comes_once(self):
        last = ("--set", "layout.dp=1", "--set", "last_window={microbatches: 1, policy: drop}")
        done = call("run", self.job, *last, "--steps", "2")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("take one step: --steps 1", done.stderr)
        once = call("run", self.job, *last, "--steps", "1")
        self.assertEqual(once.returncode, 0, once.stderr)
        self.assertIn("no parameter changed in the last step", once.stdout)

    def test_a_rank_between_may_keep_more_than_the_first_and_the_last(self):
        """Of megatron-dist-opt's ranges those that have gaps between parameters keep less: rank 1 of 3 has none here."""
        shape = ("network={layers: 1, hidden: 40, ffn: 40, heads: 4, kv_heads: 2, vocabulary: 130, tied_embeddings: true, "
                 "ffn_kind: two-layer}", "strategy=megatron-dist-opt", "layout.dp=3", "accumulation_steps=1")
        self.assert_memory(*shape)
        done = call("run", self.job, *[word for change in shape for word in ("--set", change)], "--capacity", "8MiB")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("unlike parts of padded state", done.stderr)

    def test_what_is_not_executed_says_so_before_anything_starts(self):
        done = call("run", self.job, "--set", "layout.dp=4000")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("4000 ranks on", done.stderr)
        for changes, words in ((("layout.tp=2", "network.kv_heads=1"), "1 key and value heads on 2"),
                               (("network.head_size=7",), "an odd size"),
                               (tuple(f"precision.{key}=fp64" for key in ("params", "gradients", "reduce", "accumulate")),
                                "a network in fp64"),
                               *((setting(f"{strategy} optimizer_step.offload=true"), "a copy between host and device")
                                 for strategy in ("deepspeed-zero1 sync.bucket_elements=20000", "deepspeed-zero2", "deepspeed-zero3",
                                                  "deepspeed-zero1 optimizer_step.clip_norm=1", "deepspeed-coalesce",
                                                  "deepspeed-zero2 accumulation_steps=1", "deepspeed-zero3 layout.tp=2"))):
            done = call("run", self.job, *[word for change in changes for word in ("--set", change)])
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn(words, done.stderr)
            self.assertNotIn("mpirun", done.stderr)
        unlike = call("run", self.job, "--set", "strategy=megatron-dist-opt", "--set", "layout.dp=3", "--capacity", "1MiB")
        self.assertEqual(unlike.returncode, 3, unlike.stderr)
        self.assertIn("unlike parts of padded state", unlike.stderr)

    def test_bad_input_is_told_in_a_sentence(self):
        for words, told in ((("--steps", "0"), "--steps"), (("--capacity", "much"), "--capacity"),
                            (("--seed", "-1"), "--seed"), (("--seed=-1",), "--seed"), (("--seed", "x"), "--seed"),
                            (("--hang-timeout", "soon"), "--hang-timeout"), (("--hang-timeout", "-2s"), "--hang-timeout"),
                            (("--data", "missing.txt"), "missing.txt")):
            done = call("run", self.job, *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(told, done.stderr)
        done = call("compare", self.job)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--device", done.stderr)


if __name__ == "__main__":
    unittest.main()
