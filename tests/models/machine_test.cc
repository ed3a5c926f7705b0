// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/configs/flatten.h"
#include "models/machine/presets.h"
#include "models/machine/rates.h"

namespace tidemark::machine_test {
namespace {

using ::testing::HasSubstr;

Machine Preset(const std::string& name) {
  Result<Machine> machine = FindMachine(name, {});
  EXPECT_TRUE(machine.ok()) << machine.error().Text();
  return machine.ok() ? *std::move(machine) : Machine{};
}

Result<Machine> FromText(const std::string& text) {
  TIDEMARK_ASSIGN(const ConfigValue root, ParseConfig(text, "m.yaml"));
  TIDEMARK_ASSIGN(const Settings settings, Flatten(root, MachineKeys()));
  return ReadMachine(settings, {});
}

TEST(Machines, OverlapUnlessTheirFileSaysOtherwise) {
  const Result<Machine> plain = FromText("from: cpu\nname: mine\n");
  const Result<Machine> in_turn = FromText("from: cpu\nname: mine\noverlap: {value: false, source: one thread}\n");
  ASSERT_TRUE(plain.ok() && in_turn.ok());
  EXPECT_TRUE(plain->overlap);
  EXPECT_FALSE(in_turn->overlap);
}

TEST(Machines, EveryPresetLoadsAndEveryNumberHasASource) {
  const std::vector<MachineSummary> presets = MachinePresets();
  EXPECT_GE(presets.size(), 11U);
  for (const MachineSummary& preset : presets) {
    const Machine machine = Preset(preset.name);
    EXPECT_EQ(machine.name, preset.name);
    EXPECT_FALSE(preset.summary.empty());
    for (const Field<Machine>& field : MachineFields()) {
      if (field.key.starts_with("rates.") || field.key == "overlap" || field.key == "driver" || field.key == "cuda" ||
          field.key == "measured_on" || field.key.starts_with("clocks.")) {
        continue;  // measured by whoever has the machine; what a GPU does anyway
      }
      const auto source = machine.sources.find(field.key);
      ASSERT_NE(source, machine.sources.end()) << preset.name << " " << field.key;
      EXPECT_FALSE(source->second.empty());
      EXPECT_THAT(source->second, ::testing::Not(HasSubstr(".yaml:"))) << preset.name << " " << field.key;
    }
  }
}

TEST(Machines, APresetIsFoundByTheNameThatItsDriverGivesTheDevice) {
  const std::optional<Machine> found = FindMachineOfDevice("NVIDIA H100 80GB HBM3");
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, Preset("h100-sxm-80gb"));
  EXPECT_FALSE(FindMachineOfDevice("NVIDIA H100"));
  EXPECT_FALSE(FindMachineOfDevice(""));
  std::set<std::string> devices;
  for (const MachineSummary& preset : MachinePresets()) {
    EXPECT_TRUE(devices.insert(Preset(preset.name).device).second) << preset.name;
  }
}

TEST(Machines, SayOnWhatTheyWereMeasured) {
  const Result<Machine> machine = FromText(
      "from: h100-sxm-80gb\nname: mine\ndriver: 580.65.06\ncuda: 13.0\nmeasured_on: 2026-01-31\n"
      "clocks: {sm_mhz: 1980, sm_max_mhz: 1985, memory_mhz: 2619, memory_max_mhz: 2620}\n");
  ASSERT_TRUE(machine.ok()) << machine.error().Text();
  EXPECT_EQ(machine->driver, "580.65.06");
  EXPECT_EQ(machine->cuda, "13.0");
  EXPECT_EQ(machine->measured_on, "2026-01-31");
  EXPECT_EQ(machine->clocks, (Clocks{1980, 1985, 2619, 2620}));
  std::string text;
  for (const auto& [key, value] : MachineYaml(*machine)) {
    text += key + ": " + value + "\n";
  }
  const Result<Machine> again = FromText(text);
  ASSERT_TRUE(again.ok()) << again.error().Text();
  EXPECT_EQ(*again, *machine);
}

/// Dense tensor-core peak and memory bandwidth from NVIDIA's datasheets (half of the figure with sparsity where only
/// that is printed), SM counts from its architecture whitepapers, and the size in the product's name.
TEST(Machines, PresetsHaveTheVendorsFigures) {
  struct Row {
    const char* name;
    double half_tflops, gigabytes_per_sec;
    std::int64_t processors, nominal_gib;
  };
  for (const Row& row : {Row{"v100-sxm-32gb", 125, 900, 80, 32}, Row{"a100-sxm-40gb", 312, 1555, 108, 40},
                         Row{"a100-pcie-40gb", 312, 1555, 108, 40}, Row{"a100-sxm-80gb", 312, 2039, 108, 80},
                         Row{"a100-pcie-80gb", 312, 1935, 108, 80}, Row{"h100-sxm-80gb", 989.4, 3350, 132, 80},
                         Row{"h100-pcie-80gb", 756, 2000, 114, 80}, Row{"h200-sxm-141gb", 989.4, 4800, 132, 141},
                         Row{"l40s-48gb", 362.05, 864, 142, 48}}) {
    const Machine machine = Preset(row.name);
    EXPECT_DOUBLE_EQ(machine.peak.at(DType::fp16).per_second(), row.half_tflops * 1e12) << row.name;
    EXPECT_DOUBLE_EQ(machine.memory_bandwidth.per_second(), row.gigabytes_per_sec * 1e9) << row.name;
    EXPECT_EQ(machine.processors, row.processors) << row.name;
    // What the driver shows is the nominal size less what it keeps: at most a twentieth (L40S, with ECC in its memory:
    // a fifteenth).
    const double nominal = static_cast<double>(row.nominal_gib) * 1024 * 1024 * 1024;
    EXPECT_LE(static_cast<double>(machine.device_memory.count()), nominal) << row.name;
    EXPECT_GE(static_cast<double>(machine.device_memory.count()), nominal * 14 / 15) << row.name;
  }
}

TEST(Machines, VoltaHasNoFastBf16) {
  const Machine machine = Preset("v100-sxm-32gb");
  EXPECT_EQ(machine.peak.at(DType::bf16), machine.peak.at(DType::fp32));
  EXPECT_THAT(machine.sources.at("peak.bf16"), HasSubstr("no native bf16"));
}

TEST(Machines, ThePlainNodeIsNoAccelerator) { EXPECT_FALSE(Preset("cpu").accelerator); }

TEST(Machines, ALinkIsNeverFasterThanItsDatasheet) {
  // NVLink per direction: 6 x 25, 12 x 25, 18 x 25 and 18 x 50 GB/s (NVIDIA's architecture whitepapers).
  EXPECT_LE(Preset("v100-sxm-32gb").intra_node.bandwidth, BytesPerSec(150e9));
  EXPECT_LE(Preset("a100-sxm-80gb").intra_node.bandwidth, BytesPerSec(300e9));
  EXPECT_LE(Preset("h100-sxm-80gb").intra_node.bandwidth, BytesPerSec(450e9));
  EXPECT_LE(Preset("b200-sxm-180gb").intra_node.bandwidth, BytesPerSec(900e9));
}

TEST(Machines, AFileMayStandOnAPreset) {
  const Result<Machine> machine = FromText("from: a100-sxm-80gb\nname: mine\ninter_node: {bandwidth: 100 Gbit/s}\n");
  ASSERT_TRUE(machine.ok()) << machine.error().Text();
  EXPECT_EQ(machine->inter_node.bandwidth, BytesPerSec(12.5e9));  // 100 / 8
  EXPECT_EQ(machine->processors, 108);
  EXPECT_EQ(machine->sources.at("inter_node.bandwidth"), "m.yaml:3");
}

TEST(Machines, NumbersWithoutAUnitOrOutOfRangeAreRefused) {
  const auto error = [](const std::string& line) {
    const Result<Machine> machine = FromText("from: cpu\n" + line + "\n");
    return machine.ok() ? std::string("accepted") : machine.error().Text();
  };
  EXPECT_THAT(error("memory_bandwidth: 900"), HasSubstr("m.yaml:2: memory_bandwidth: '900' is not a bandwidth"));
  EXPECT_THAT(error("memory_bandwidth: 0 GB/s"), HasSubstr("at least 1000 B/s"));
  EXPECT_THAT(error("kernel_launch: 2"), HasSubstr("'2' is not a time"));
  EXPECT_THAT(error("peak: {bf16: 900 TB/s}"), HasSubstr("is not a rate of arithmetic"));
  EXPECT_THAT(error("device_memory: 0"), HasSubstr("at least 1.00 MiB"));
  EXPECT_THAT(error("achievable_flops: 1.5"), HasSubstr("expected a number from 0.01 to 1"));
  EXPECT_THAT(error("context: {low: 2 GiB}"), HasSubstr("low <= expected <= high"));
  EXPECT_THAT(error("device_memory: {value: 1 GiB}"),
              HasSubstr("{value: ..., source: ...} with both, found a map of value"));
  EXPECT_THAT(error("device_memory: {vlue: 1 GiB, source: a guess}"), HasSubstr("found a map of vlue, source"));
  EXPECT_THAT(error("device_memory: {value: 1 GiB, source: ''}"),
              HasSubstr("expected a source in words, found an empty one"));
  EXPECT_THAT(error("device_memory: {value: 1 GiB, source: [a, b]}"), HasSubstr("found a list"));
  EXPECT_THAT(error("device_memory: {}"), HasSubstr("found a map of nothing"));
  EXPECT_THAT(error("rates.dropout.bf16: {16: 7 GB/s}"), HasSubstr("for example \"65536: 30 GB/s, 67108864: 9 GB/s\""));
  EXPECT_THAT(error("clocks: {sm_mhz: -1}"), HasSubstr("expected a whole number from 0 to 100000"));
  for (const char* day : {"yesterday", "2026-02-30", "2026-1-31", "2026-01-31x", "[2026]"}) {
    EXPECT_THAT(error(std::string("measured_on: ") + day), HasSubstr("expected a day, as year-month-day"));
  }
  EXPECT_THAT(error("procesors: 4"), HasSubstr("did you mean processors?"));
}

TEST(Machines, AnErrorInAFileNamesItOnce) {
  const std::string path = testing::TempDir() + "wrong.machine.yaml";
  const auto error = [&](const char* text) {
    std::ofstream(path) << text;
    const Result<Machine> machine = FindMachine(path, {});
    return machine.ok() ? std::string("accepted") : machine.error().where;
  };
  EXPECT_EQ(error("from: cpu\nkernel_launch: 2\n"), path + ":2: kernel_launch");
  EXPECT_EQ(error("name: mine\n"), path) << "what is missing has no line";
}

TEST(Machines, AMeasuredCurveIsReadAndWrittenBack) {
  const Result<Machine> machine =
      FromText("from: cpu\nrates: {gemm.fp32: {value: \"64: 40 GFLOP/s, 256:90 GFLOP/s\", source: measured}}\n");
  ASSERT_TRUE(machine.ok()) << machine.error().Text();
  const RateCurve& curve = machine->rates.at("gemm.fp32");
  EXPECT_EQ(curve, (RateCurve{{64, 40e9}, {256, 90e9}}));
  EXPECT_EQ(RateForm{true}.Write(curve), "\"64: 40000000000 FLOP/s, 256: 90000000000 FLOP/s\"");
  std::string text;
  for (const auto& [key, value] : MachineYaml(*machine)) {
    text += key + ": " + value + "\n";
  }
  const Result<Machine> again = FromText(text);
  ASSERT_TRUE(again.ok()) << again.error().Text();
  EXPECT_EQ(*again, *machine);
}

// As calibration writes it: each number with its source.
TEST(Machines, CurvesOfAllKindsStandInOneFile) {
  Machine machine = *FromText("from: cpu\n");
  for (const RatedKind& kind : RatedKinds()) {
    machine.rates[kind.key] = {{64, 40e9}};
    machine.sources["rates." + kind.key] = "measured";
  }
  std::string text;
  for (const auto& [key, value] : MachineYaml(machine)) {
    text += key + ": " + value + "\n";
  }
  const Result<Machine> again = FromText(text);
  ASSERT_TRUE(again.ok()) << again.error().Text();
  EXPECT_EQ(*again, machine);
}

TEST(Machines, ACurveThatIsNoneIsRefused) {
  const auto error = [](const std::string& curve) {
    const Result<Machine> machine = FromText("from: cpu\nrates: {gemm.fp32: \"" + curve + "\"}\n");
    return machine.ok() ? std::string("accepted") : machine.error().Text();
  };
  EXPECT_THAT(error("40 GFLOP/s"), HasSubstr("m.yaml:2: rates.gemm.fp32: '40 GFLOP/s' is no size and rate"));
  EXPECT_THAT(error("64: 40 GB/s"), HasSubstr("'40 GB/s' is not a rate of arithmetic"));
  EXPECT_THAT(error("64: 40 GFLOP/s, 64: 50 GFLOP/s"), HasSubstr("expected rising sizes, found 64 after 64"));
  EXPECT_THAT(error("0: 40 GFLOP/s"), HasSubstr("is no size and rate"));
  EXPECT_THAT(error("64: 0 GFLOP/s"), HasSubstr("expected at least 1000 a second"));
  EXPECT_THAT(error("64: 40 GFLOP/s,"), HasSubstr("'' is no size and rate"));
  EXPECT_THAT(error(""), HasSubstr("'' is no size and rate"));
}

// 40 GFLOP/s at 64 and 160 at 256: four times the rate at four times the size, so twice at twice.
TEST(Rates, BetweenTwoPointsLiesAPowerLawAndBeyondThemTheirEnds) {
  const RateCurve curve = {{64, 40e9}, {256, 160e9}};
  EXPECT_DOUBLE_EQ(RateAt(curve, 64), 40e9);
  EXPECT_DOUBLE_EQ(RateAt(curve, 128), 80e9);
  EXPECT_DOUBLE_EQ(RateAt(curve, 256), 160e9);
  EXPECT_DOUBLE_EQ(RateAt(curve, 1), 40e9);
  EXPECT_DOUBLE_EQ(RateAt(curve, 1 << 20), 160e9);
}

TEST(Rates, AnOperatorIsRatedByItsKindDTypeAndSize) {
  const auto work = [](const Operator& op) {
    const auto rated = WorkOf(op);
    return rated ? fmt::format("{} {} {}", rated->key, rated->size, rated->work) : std::string("none");
  };
  EXPECT_EQ(work(Gemm{.m = 16, .n = 8, .k = 24}), "gemm.bf16 8 6144");  // 2 * 16 * 8 * 24
  // 2 products, 2 * 16 * 16 * 4 operations each, half of them seen.
  EXPECT_EQ(
      work(Attention{.batch = 1, .heads = 1, .kv_heads = 1, .sequence = 16, .head_size = 4, .dtype = DType::fp32}),
      "attention.fp32 16 2048");
  EXPECT_EQ(WorkOf(Attention{.head_size = 64})->key, "attention.bf16");
  EXPECT_EQ(WorkOf(Attention{.head_size = 80, .backward = true})->key, "attention_wide_backward.bf16");
  EXPECT_EQ(work(Rope{.elements = 10, .backward = true}), "rope.bf16 40 40");
  EXPECT_EQ(work(Norm{.rows = 1, .width = 4, .backward = true}), "norm_backward.bf16 44 44");  // 3 * 8 + 2 * 8 + 4
  // A row in and out, weight and bias of 8 bytes each; and two statistics of 4.
  EXPECT_EQ(work(Norm{.rows = 1, .width = 4, .layer_norm = true}), "layer_norm.bf16 40 40");
  EXPECT_EQ(work(Pointwise{.elements = 10, .bytes_moved = 40}), "stream 40 40");
  EXPECT_EQ(work(Pointwise{.elements = 10, .bytes_moved = 50, .draws = true}), "dropout.bf16 50 50");
  EXPECT_EQ(work(Pointwise{.elements = 10, .bytes_moved = 90, .draws = true}), "dropout.fp32 90 90");
  EXPECT_EQ(work(Pointwise{.elements = 10, .bytes_moved = 20, .column_sums = true}), "column_sum.bf16 20 20");
  EXPECT_EQ(work(Pointwise{.elements = 10, .bytes_moved = 40, .column_sums = true}), "column_sum.fp32 40 40");
  EXPECT_EQ(work(Pointwise{.elements = 10, .bytes_moved = 60}), "pointwise.bf16 60 60");
  EXPECT_EQ(work(Pointwise{.elements = 10, .bytes_moved = 120, .flops_per_element = 5}), "activation.fp32 120 120");
  EXPECT_EQ(work(CrossEntropy{.bytes_moved = 7, .backward = true}), "cross_entropy_backward 7 7");
  EXPECT_EQ(work(OptimizerUpdate{.elements = 1, .bytes_moved = 28}), "optimizer_update 28 28");
  EXPECT_EQ(work(OptimizerUpdate{.elements = 1, .bytes_moved = 14}), "optimizer_update_narrow 14 14");
  EXPECT_EQ(work(Tabulated{.flops = 5}), "none");
  EXPECT_EQ(work(Gemm{.m = 8, .n = 2, .k = 4, .dtype = DType::fp64}), "none") << "nobody measures it";
}

// 4096 x 3072 outputs of sums over 768, and the two other products of that layer. Of equal dimensions none is smallest.
TEST(Rates, AProductOfShortSumsHasItsOwnCurve) {
  const auto key = [](const Operator& op) { return WorkOf(op)->key; };
  EXPECT_EQ(key(Gemm{.m = 4096, .n = 3072, .k = 768}), "gemm_inner.bf16");
  EXPECT_EQ(key(Gemm{.m = 4096, .n = 768, .k = 3072}), "gemm.bf16");
  EXPECT_EQ(key(Gemm{.m = 3072, .n = 768, .k = 4096}), "gemm.bf16");
  EXPECT_EQ(key(Gemm{.m = 4096, .n = 768, .k = 768}), "gemm.bf16");
  const InfoNce logits{.rows = 512, .columns = 512, .width = 128, .dtype = DType::fp32};
  EXPECT_EQ(key(logits), "gemm_inner.fp32");
  EXPECT_EQ(key(InfoNce{.rows = 512, .columns = 512, .width = 128, .backward = true}), "gemm.fp32");
}

// Pieces are of 16 bytes: of 8 elements of bf16, of 4 of fp32. Which side is none does not matter.
TEST(Rates, AProductIsUnalignedWhereASideIsNotWholePieces) {
  const auto key = [](const Operator& op) { return WorkOf(op)->key; };
  for (const Gemm& op : {Gemm{.m = 9, .n = 8, .k = 8}, Gemm{.m = 8, .n = 9, .k = 8}, Gemm{.m = 8, .n = 8, .k = 12}}) {
    EXPECT_EQ(key(op), "gemm_unaligned.bf16");
  }
  EXPECT_EQ(key(Gemm{.m = 8, .n = 8, .k = 12, .dtype = DType::fp32}), "gemm.fp32");
  EXPECT_EQ(key(InfoNce{.rows = 8, .columns = 10, .width = 8, .dtype = DType::fp32}), "gemm_unaligned.fp32");
}

TEST(Rates, AProductIsRatedAsASmallOneByItsOperationsToo) {
  const auto small = [](const Operator& op) {
    const auto rated = SmallWorkOf(op);
    return rated ? fmt::format("{} {} {}", rated->key, rated->size, rated->work) : std::string("none");
  };
  EXPECT_EQ(small(Gemm{.m = 16, .n = 8, .k = 24, .batch = 3}), "gemm_small.bf16 18432 18432");  // 3 * 2 * 16 * 8 * 24
  EXPECT_EQ(small(Gemm{.m = 9, .n = 8, .k = 8}), "gemm_small.bf16 1152 1152");
  // Two products one after the other, each of 2 * 8 * 4 * 2.
  EXPECT_EQ(small(InfoNce{.rows = 8, .columns = 4, .width = 2, .backward = true}), "gemm_small.fp32 128 256");
  EXPECT_EQ(small(Gemm{.m = 8, .n = 8, .k = 8, .dtype = DType::fp64}), "none");
  EXPECT_EQ(small(Norm{.rows = 1, .width = 4}), "none");
}

// A machine file may lack a kind: of the processor, or written by hand.
TEST(Rates, AKindOfFewShapesHasAnotherThatStandsInForIt) {
  const auto otherwise = [](const Operator& op) { return WorkOf(op)->otherwise; };
  EXPECT_EQ(otherwise(Gemm{.m = 9, .n = 8, .k = 8}), "gemm.bf16");
  EXPECT_EQ(otherwise(Gemm{.m = 16, .n = 16, .k = 8}), "gemm.bf16");
  EXPECT_EQ(otherwise(Pointwise{.elements = 10, .bytes_moved = 90, .draws = true}), "pointwise.fp32");
  EXPECT_EQ(otherwise(Pointwise{.elements = 10, .bytes_moved = 20, .column_sums = true}), "stream");
  EXPECT_EQ(otherwise(Attention{.head_size = 128, .backward = true}), "attention_backward.bf16");
  EXPECT_EQ(otherwise(Norm{.rows = 1, .width = 4, .layer_norm = true, .dtype = DType::fp32}), "norm.fp32");
  EXPECT_EQ(otherwise(OptimizerUpdate{.elements = 1, .bytes_moved = 14}), "optimizer_update");
  EXPECT_EQ(otherwise(Gemm{.m = 8, .n = 8, .k = 8}), "");
  for (const RatedKind& kind : RatedKinds()) {
    EXPECT_EQ(std::count_if(RatedKinds().begin(), RatedKinds().end(),
                            [&](const RatedKind& other) { return other.key == kind.key; }),
              1)
        << kind.key;
  }
}

TEST(Machines, AFileWithoutAPresetMustBeComplete) {
  const Result<Machine> machine = FromText("name: mine\npeak: {fp32: 1 TFLOP/s}\n");
  ASSERT_FALSE(machine.ok());
  EXPECT_THAT(machine.error().Text(), HasSubstr("the machine lacks 'accelerator'"));
}

}  // namespace
}  // namespace tidemark::machine_test
