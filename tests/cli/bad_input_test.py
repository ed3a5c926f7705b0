# SPDX-License-Identifier: Apache-2.0
"""Wrong input, given to the real program: exit code 2, one sentence that says what and where, a hint, and no output file."""

import os
import pathlib
import subprocess
import tempfile
import unittest

from tidemark import PROGRAM, run

JOBS = pathlib.Path(__file__).resolve().parent.parent / "jobs"

JOB = """network: llama-3-8b
machine: h100-sxm-80gb
strategy: ddp-last
sequence_length: 2048
micro_batch_size: 1
accumulation_steps: 4
"""

# What each system says to a combination that it refuses: strategy, settings, a part of its own text.
REFUSED = [
    ("ddp-every", ["layout.pp=2"], "layout.pp: in a pipeline DDP synchronises in the last backward pass only"),
    ("ddp-last", ["shard.optimizer=true"], "shard.optimizer: DistributedDataParallel keeps whole parameters"),
    ("ddp-forward-outside", ["sync.when=every"], "sync.forward_in_no_sync: only a loop that defers"),
    ("single-backward", ["sync.when=every"], "sync.when: one backward pass completes each gradient once"),
    ("fsdp1", ["layout.dp=4", "shard.replicas=4"], "FSDP is switching to use `NO_SHARD`"),
    ("fsdp1-no-sync", ["network.trainable=head.*"], "Must flatten tensors with uniform `requires_grad`"),
    ("fsdp2-scatter-each", ["sync.collective=all_reduce"], "sync.collective: fully_shard reduces gradients by reduce-"),
    ("fsdp2-defer", ["precision.accumulate=bf16"], "fully_shard accumulates deferred gradients in the reduce dtype"),
    ("hsdp", ["layout.dp=4"], "shard.replicas: hsdp shards within each replica"),
    ("colossalai-ddp", ["layout.pp=2"], "layout.pp: TorchDDPPlugin has no pipelines"),
    ("colossalai-zero1", ["sync.bucket_elements=0"], "sync.bucket_elements: a reduction bucket of no elements"),
    ("colossalai-zero2", ["sync.when=last"], "The plugin LowLevelZeroPlugin_ZeRO-2 does not support no_sync."),
    ("colossalai-zero2", ["sync.when=last", "layout.tp=2"], "ZERO2 is not compatible with no_sync function"),
    ("colossalai-gemini", ["sync.when=last"], "The plugin GeminiPlugin does not support no_sync."),
    ("colossalai-gemini", ["optimizer=sgd"], "You should use an optimizer in the available list: FusedAdam"),
    ("deepspeed-zero0", ["sync.coalesce=true"], "coalesce_grad_reduction requires ZeRO stage 1/2/3, got stage 0"),
    ("deepspeed-zero1", ["sync.when=every"], "ZeRO stages 0 and 1 communicate only at gradient accumulation"),
    ("deepspeed-zero1", ["sync.when=custom", "sync.expression=i == 0", "sync.step_expression=i == 1"],
     "It is illegal to call Engine.step() inside no_sync context manager"),
    ("deepspeed-zero2", ["sync.when=last"],
     "sync.when: no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 2"),
    ("deepspeed-zero2", ["buffers.contiguous_gradients=false"], "(contiguous_gradients: false) is not modelled"),
    ("deepspeed-zero2", ["last_window.microbatches=3", "last_window.policy=drop"], "to carry-over, rescaled or not-rescaled"),
    ("colossalai-gemini", ["last_window.microbatches=3", "last_window.policy=drop"], "to carry-over, rescaled or not-rescaled"),
    ("single-backward", ["last_window.microbatches=3", "last_window.policy=drop"], "to carry-over, rescaled or not-rescaled"),
    ("deepspeed-zero3", ["sync.when=last"],
     "sync.when: no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 3"),
    ("deepspeed-zero3", ["layout.pp=2"], "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism"),
    ("deepspeed-coalesce", ["layout.pp=2"], "coalesce_grad_reduction is not supported under pipeline parallelism"),
    ("deepspeed-bf16", ["sync.coalesce=true"], "does not yet support optimizer wrapper BF16_Optimizer"),
    ("nanotron", ["sync.when=every"], "nanotron runs every backward but the last inside no_sync"),
    ("nanotron", ["layout.tp=2", "layout.sp=false", "buffers.tp_gather=async"],
     "buffers.tp_gather: async_communication is not supported for ALL_REDUCE mode"),
    ("megatron", ["layout.tp=2", "layout.sp=true", "buffers.tp_gather=fresh"],
     "buffers.tp_gather: Megatron gathers sequence-parallel inputs into its global memory buffer"),
    ("fsdp2-defer", ["layout.tp=2", "buffers.tp_gather=pooled-unsafe"], "there is no pool and no second gather"),
    ("hsdp", ["layout.tp=2", "layout.dp=4", "shard.replicas=2", "buffers.tp_gather=async"], "no second gather"),
    ("single-backward", ["layout.tp=2", "layout.sp=true", "buffers.tp_gather=pooled"], "single-backward has no such setting"),
    ("ddp-last", ["layout.tp=2", "layout.sp=true", "buffers.tp_gather=cached"], "ddp-last has no such setting"),
    ("deepspeed-zero2", ["layout.tp=2", "layout.sp=true", "buffers.tp_gather=pooled"], "has no such setting"),
    ("megatron", ["sync.when=every"], "its buffer may be reduced once per window only"),
    ("megatron-dist-opt", ["optimizer=sgd"], "Only Adam currently supported, due to checkpointing requirements."),
    ("alpa", ["sync.when=every"], "Alpa clears XLA_SKIP_NCCL_COLLECTIVE_IDS for the last microbatch only"),
    ("alpa", ["gradient_flow.loop=program"], "cannot change executables or environment variables"),
    ("alpa-style1", ["layout.pp=2"], "splits into accumulate_grad and apply_grad can become pipeline stages"),
    ("jax-multisteps", ["layout.pp=2"], "has no pipeline stages"),
    ("ddp-last", ["buffers.donate=false"], "ddp-last has no such setting"),
]


class BadInput(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, text, name="job.yaml"):
        path = self.folder / name
        path.write_text(text)
        return path

    def assert_refused(self, arguments, *sentences, code=2):
        done = run(*arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        lines = done.stderr.splitlines()
        self.assertTrue(lines[0].startswith("tidemark: error: "), done.stderr)
        self.assertLessEqual(len(lines), 2, done.stderr)
        for line in lines[1:]:
            self.assertTrue(line.startswith("hint: "), done.stderr)
        for sentence in sentences:
            self.assertIn(sentence, done.stderr)
        self.assertNotIn("internal fault", done.stderr)

    def assert_job_refused(self, text, *sentences, changes=()):
        path = self.write(text)
        self.assert_refused(["job", path, *[word for change in changes for word in ("--set", change)]], *sentences)

    def test_a_right_job_is_accepted(self):
        done = run("job", self.write(JOB))
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_an_unknown_key_names_its_line_and_the_nearest(self):
        self.assert_job_refused(JOB + "layuot: {dp: 8}\n", "job.yaml:7: layuot: ", "hint: did you mean layout?")
        self.assert_job_refused(JOB, "--set layout.dq=8", "did you mean layout.dp?", changes=["layout.dq=8"])

    def test_a_wrong_type_says_what_was_expected(self):
        self.assert_job_refused(JOB.replace("steps: 4", "steps: lots"), "job.yaml:6: accumulation_steps: expected a whole number")
        self.assert_job_refused(JOB + "layout: [8]\n", "job.yaml:7: layout: expected a section, found a list")

    def test_nothing_is_no_value(self):
        for key in ("micro_batch_size", "accumulation_steps"):
            self.assert_job_refused(JOB, f"{key}: expected a whole number, found nothing", f"hint: write a value, for example {key}: ",
                                    changes=[f"{key}="])
        self.assert_job_refused(JOB, "layout.dp: expected a whole number, found nothing", changes=["layout.dp=null"])
        self.assert_job_refused(JOB.replace("steps: 4", "steps:"), "job.yaml:6: accumulation_steps: expected")

    def test_a_wrong_value_is_shown_a_right_one(self):
        for change, hint in (("network.layers=0", "network.layers: 8"), ("packing.qkv=0", "packing.qkv: packed"),
                             ("layout.dp=abc", "layout.dp: 8"), ("sync.bucket_bytes=0.5", "sync.bucket_bytes: 25 MiB"),
                             ("sync.overlap=maybe", "sync.overlap: true"), ("machine.device_memory=0", "machine.device_memory: 80 GiB"),
                             ("machine.device_memory=80", "machine.device_memory: 80 GiB")):
            self.assert_job_refused(JOB, "hint: for example " + hint, changes=[change])
        self.assert_job_refused(JOB, "expected a whole number from 1 to 16384", changes=["network.layers=65536"])

    def test_a_machines_key_is_named_as_it_is_set(self):
        self.assert_job_refused(JOB, "--set machine.overlap=maybe: machine.overlap: expected true or false",
                                "hint: for example machine.overlap: true", changes=["machine.overlap=maybe"])
        inline = "machine: {from: cpu, overlap: maybe}\n"
        text = "".join(inline if line.startswith("machine:") else line for line in JOB.splitlines(keepends=True))
        self.assert_job_refused(text, ": machine.overlap: expected true or false")
        machine = self.write("from: cpu\noverlap: maybe\n", "mine.yaml")
        self.assert_job_refused(JOB, "mine.yaml:2: overlap: expected", "hint: for example overlap: true",
                                changes=[f"machine={machine}"])

    def test_a_setting_of_a_sibling_names_it(self):
        self.assert_job_refused(JOB, "colossalai-zero1 has no such setting", "set shard.gradients to false, or leave it out; or use colossalai-zero2",
                                changes=["strategy=colossalai-zero1", "shard.gradients=true"])

    def test_a_refused_section_names_where_its_value_came_from(self):
        self.assert_job_refused(JOB, "--set shard.params=true: shard.params: ", changes=["shard.params=true"])
        self.assert_job_refused(JOB + "shard:\n  replicas: 1\n  params: true\n", "job.yaml:9: shard.params: ")

    def test_a_section_may_be_set(self):
        self.assert_job_refused(JOB, "network: lacks 'hidden'", "hint: an inline network needs", changes=["network={name: x, layers: 4}"])
        done = run("job", self.write(JOB), "--set", "layout={dp: 4, tp: 2}")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"dp: 4 .*--set\n +tp: 2 .*--set\n")

    def test_a_layout_must_divide_the_network(self):
        self.assert_job_refused(JOB + "layout: {tp: 3}\n", "job.yaml:7: layout.tp: 32 attention heads do not divide over 3 ranks")
        self.assert_job_refused(JOB + "layout: {pp: 5}\n", "job.yaml:7: layout.pp: 32 layers do not divide into 5 stages",
                                "layout.layers_per_stage")
        self.assert_job_refused(JOB + "layout: {dp: 8}\nshard: {replicas: 3}\n", "job.yaml:8: shard.replicas: ")

    def test_a_combination_that_the_real_system_refuses_is_refused_in_its_words(self):
        for strategy, changes, text in REFUSED:
            with self.subTest(strategy=strategy, changes=changes):
                self.assert_job_refused(JOB, text, changes=[f"strategy={strategy}", *changes])

    def test_too_few_microbatches_for_1f1b_are_refused_where_the_system_asserts_it(self):
        self.assert_job_refused(JOB, "1F1B", changes=["strategy=nanotron", "layout.pp=8"])

    def test_contradictions_are_refused(self):
        self.assert_job_refused(JOB, "contradicts buffers.tp_gather",
                                changes=["strategy=nanotron", "buffers.tp_gather=pooled", "recompute.tp_gather=false"])
        for strategy, again in (("nanotron", "false"), ("megatron", "false"), ("fsdp2-defer", "true"), ("ddp-last", "true")):
            self.assert_job_refused(JOB, f"recompute.tp_gather: {again} contradicts buffers.tp_gather", ": remove this key",
                                    changes=[f"strategy={strategy}", f"recompute.tp_gather={again}"])
            done = run("job", self.write(JOB), "--set", f"strategy={strategy}")  # as the hint says
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_truncated_file_is_told_apart_from_a_wrong_one(self):
        for length in (len(JOB) - 20, len(JOB) - 40, 30, 9):
            done = run("job", self.write(JOB[:length]))
            self.assertEqual(done.returncode, 2, JOB[:length])
            self.assertTrue(done.stderr.startswith("tidemark: error: "))
        self.assert_job_refused(JOB + "layout: {dp: 8, tp", "is not valid YAML", "is the file complete")

    def test_directories_absent_files_and_binaries_are_refused(self):
        self.assert_refused(["job", self.folder], "is a directory; expected a file")
        self.assert_refused(["job", self.folder / "absent.yaml"], "there is no such file")
        self.assert_refused(["job", "network=Qwen/Qwen3-8B"], "JOB --set network=Qwen/Qwen3-8B")
        self.assert_refused(["job", "Qwen/Qwen3-8B"], "JOB --set network=Qwen/Qwen3-8B")
        self.assert_refused(["job", "gpt2"], 'a file with "network: gpt2" in it')
        self.assert_refused(["job", "network"], "the path is relative to the current folder")
        self.assert_refused(["job", "lr=1/absent.yaml"], "the path is relative to the current folder")
        self.assert_refused(["job", PROGRAM], "error: ")

    def test_a_trace_in_the_place_of_a_job_is_told_what_it_is(self):
        for name in ("samples/torch-1.13-cpu-decoder.json.gz", "snapshots/plain.pickle"):
            self.assert_refused(["predict", JOBS.parent / "traces" / name], "this is a trace, which is no job", "--observed")

    def test_a_tab_in_yaml_is_named(self):
        self.assert_job_refused(JOB + "layout:\n\tdp: 8\n", "is not valid YAML", "a line begins with a tab")
        self.assert_job_refused('{\n\t"model_type": "gpt2",\n\t"n_layer": 12\n', "is not valid YAML", "every bracket")

    def test_a_job_from_a_pipe_is_read_once(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        writer = subprocess.Popen(["sh", "-c", 'printf "bad: [\\n" > "$0"', str(pipe)])
        self.assert_refused(["predict", pipe], "is not valid YAML")
        writer.wait(timeout=10)

    def test_a_file_of_two_gigabytes_is_refused_without_reading_it(self):
        path = self.folder / "checkpoint.yaml"
        with open(path, "wb") as file:
            file.truncate(2 * 1024**3)
        self.assert_refused(["job", path], "is larger than 16.0 MiB")

    def test_an_endless_file_is_refused(self):
        self.assert_refused(["job", "/dev/zero"], "is larger than 16.0 MiB")

    def test_numbers_that_overflow_are_refused(self):
        self.assert_job_refused(JOB, "expected a whole number from 1 to", changes=["accumulation_steps=99999999999999999999"])
        self.assert_job_refused(JOB, "error: ", changes=["accumulation_steps=16777216", "micro_batch_size=16777216"])
        self.assert_job_refused(JOB, "--set micro_batch_size=65536: micro_batch_size: with 65536 here, the sizes of this job",
                                "4096 is more than is ever used", changes=["micro_batch_size=65536", "accumulation_steps=8192"])
        self.assert_job_refused(JOB, "--set accumulation_steps=16777216: accumulation_steps: with 16777216 here, ",
                                changes=["strategy=megatron", "accumulation_steps=16777216", "network=llama-3.1-405b"])
        self.assert_job_refused(JOB, "error: ", changes=["network.hidden=67108864", "network.ffn=67108864"])
        self.assert_job_refused(JOB, "more than 2^62 bytes", changes=["sync.bucket_bytes=1e30"])
        self.assert_job_refused(JOB, "expected a whole number", changes=["layout.dp=-8"])

    def test_experts_are_divided_where_there_are_any_and_the_strategy_can(self):
        self.assert_job_refused(JOB, "the network has no experts", changes=["layout.ep=2"])
        experts = ["network.experts.count=8", "network.experts.ffn=512", "layout.dp=4", "layout.ep=2"]
        self.assert_job_refused(JOB, "does not divide experts over ranks", changes=experts)
        self.assert_job_refused(JOB, "multiple of layout.ep", changes=[*experts[:2], "layout.ep=3", "layout.dp=3",
                                                                      "strategy=megatron"])

    def test_a_table_has_nothing_that_could_be_done_again(self):
        table = str(JOBS / "resnet18-cifar10.yaml")
        for policy in ("selective", "full", "every_n", "per_op"):
            self.assert_refused(["predict", table, f"--set=recompute.policy={policy}"], "rows of a table network are no operators")

    def test_names_that_do_not_exist_get_the_nearest(self):
        self.assert_job_refused(JOB, "did you mean ddp-last?", changes=["strategy=ddp-lst"])
        self.assert_job_refused(JOB, "did you mean llama-3-8b?", changes=["network=llama3-8b"])
        self.assert_job_refused(JOB, "did you mean h100-sxm-80gb?", changes=["machine=h100-smx-80gb"])
        self.assert_job_refused(JOB, "did you mean ddp-last?", changes=["strategy=ddp"])
        self.assert_job_refused(JOB, "did you mean h100-sxm-80gb?", changes=["machine=h100"])

    def test_the_network_alone_is_not_a_job(self):
        path = self.write('{"model_type": "gpt2", "n_layer": 12}', "config.json")
        self.assert_refused(["job", path], "the job has no strategy")

    def test_a_file_of_another_tool_is_not_a_job(self):
        self.assert_job_refused("services: {web: {image: nginx}}\n", "is not a config that tidemark knows", "nanotron")

    def test_the_sample_of_another_format_does_not_pass_for_one_of_ours(self):
        self.assert_refused(["job", JOBS / "nanotron-tinystories-tp4.yaml", "--job-format", "tidemark"], "there is no such key")

    def test_a_misspelled_verb_or_option_gets_the_nearest(self):
        self.assert_refused(["jbo", "x"], "'jbo' is not a verb of tidemark", "did you mean 'tidemark job'?")
        self.assert_refused(["list", "machines", "--fromat", "json"], "did you mean --format?")
        self.assert_refused([], "a verb is expected")
        self.assert_refused(["job"], "JOB is required")
        self.assert_refused(["job", "a.yaml", "b.yaml"], "error: ", "tidemark job --help")
        self.assert_refused(["job", "a.yaml", "layout.dp=8"], "did you mean --set layout.dp=8?")
        self.assert_refused(["job", "layout.dp=8", "a.yaml", "layout.tp=2"], "did you mean --set layout.dp=8 --set layout.tp=2?")
        self.assert_refused(["job", "a.yaml", "b.yaml", "--set", "layout.dp=8"], "tidemark job --help")
        self.assert_refused(["job", "a.yaml", "layout.ddp=8"], "error: ", "tidemark job --help")
        self.assert_refused(["list", "machines", "--format", "xml"], "error: ")

    def test_no_output_file_is_begun_for_wrong_input(self):
        path = self.write(JOB + "layout: {tp: 3}\n")
        verbs = run("--help").stdout
        if "predict" not in verbs:
            self.skipTest("this build has no predict")
        out = self.folder / "out"
        for option in ("--trace", "--html"):
            self.assert_refused(["predict", path, option, out], "layout.tp")
            self.assertFalse(out.exists())

    def test_a_job_that_no_addresses_are_enough_for_is_refused_in_a_sentence(self):
        """2^24 tokens have a mask of 2^48 bytes."""
        job = pathlib.Path(__file__).resolve().parents[1] / "jobs" / "gpt2-ddp.yaml"
        small = "network={name: small, layers: 2, hidden: 64, ffn: 96, heads: 4, kv_heads: 2, vocabulary: 256}"
        large = [job, *(word for change in (small, "strategy=megatron", "buffers.attention_mask=true", "sequence_length=16777216",
                                            "micro_batch_size=1") for word in ("--set", change))]
        self.assert_refused(["predict", *large], "allocators are simulated up to 64.0 TiB")
        self.assertEqual(run("predict", *large, "--engine", "closed-form").returncode, 1)  # it is told, and does not fit

    def test_a_full_disk_is_no_success(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("there is no /dev/full")
        with open("/dev/full", "w") as full:
            done = subprocess.run([PROGRAM, "list", "machines"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 3)
        self.assertIn("stdout: cannot be written", done.stderr)


if __name__ == "__main__":
    unittest.main()
