// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/render/render.h"
#include "tests/traces/trace_script.h"

namespace tidemark::comparison_test {
namespace {

using testing::HasSubstr;

ReadTrace File(const std::string& path, const Trace& trace) { return {path, {{trace}, "", "tidemark"}}; }

/// 512 bytes of weights; two microbatches that save 1,024 bytes.
std::vector<Happening> Step() {
  std::vector<Happening> script = {Allocated("weights", 512, 0, Category::parameter)};
  for (const std::int32_t microbatch : {0, 1}) {
    for (const Happening& happening :
         {Begun("forward", microbatch), Allocated("tokens", 8, 0, Category::input), Allocated("saved", 1024), Ended(),
          Begun("backward", microbatch), Freed("saved"), Freed("tokens"), Ended()}) {
      script.push_back(happening);
    }
  }
  return script;
}

ComparisonReport Compared(const Trace& predicted, Trace measured) {
  measured.origin = "measured on cpu";
  Result<ComparisonReport> report = MakeComparison(File("p.trace", predicted), File("m.trace", measured));
  EXPECT_TRUE(report) << report.error().Text();
  return *report;
}

std::vector<std::string> Sentences(const Trace& predicted, const Trace& measured) {
  std::vector<std::string> sentences;
  const ComparisonReport report = Compared(predicted, measured);
  for (const WordedCause& cause : CausesInWords(report.comparison.Worst())) {
    sentences.push_back(cause.sentence);
  }
  return sentences;
}

TEST(CausesInWords, sayWhichTensorIsFreedLaterAndWhere) {
  std::vector<Happening> measured = Step();
  const auto freed = std::find_if(measured.begin(), measured.end(), [](const Happening& h) {
    return h.kind == Happening::Kind::free && h.name == "saved";
  });
  measured.erase(freed);
  const auto second = std::find_if(measured.begin() + 6, measured.end(), [](const Happening& h) {
    return h.kind == Happening::Kind::alloc && h.name == "tokens";
  });
  measured.insert(second + 1, Freed("saved"));
  EXPECT_THAT(
      Sentences(Play(Step()), Play(measured)),
      testing::ElementsAre("saved (activation) is freed later than predicted (once): in forward of microbatch 1, "
                           "after tokens is allocated instead of in backward of microbatch 0, after saved is "
                           "allocated; the peak does not feel it."));
}

TEST(CausesInWords, sayWhatALibraryTakesForItself) {
  std::vector<Happening> measured = Step();
  measured.insert(measured.begin() + 4, Freed("scratch"));
  measured.insert(measured.begin() + 4, Allocated("scratch", 64, 0, Category::workspace));
  EXPECT_THAT(Sentences(Play(Step()), Play(measured)),
              testing::ElementsAre("scratch, scratch memory of a library, is measured, but not predicted: 64 B in "
                                   "forward of microbatch 0; -64 B of the peak's error.",
                                   "the step took 20 ns longer than predicted; one of the traces has no kernels to say "
                                   "why."));
}

TEST(CausesInWords, tellRoundingFromFragmentation) {
  // Blocks of 512 bytes: only the 8 bytes of tokens become more, 504 of them. 100 bytes are reserved beyond the blocks.
  EXPECT_THAT(
      Sentences(Play(Step()), Play(Step(), 512, 100)),
      testing::ElementsAre("the allocator's peak differs by -504 B beyond the tensors'; blocks differ of tokens.",
                           "reserved memory differs by -100 B beyond the allocator's blocks: more was held "
                           "between and behind them than predicted."));
}

// A preset stands in a job by its name, a calibrated machine in full.
TEST(ComparisonReport, saysHowToCalibrateWhereTimesAreAPresets) {
  Trace predicted = Play(Step());
  const auto told = [&](const std::string& job) {
    predicted.job_yaml = job;
    return RenderAs("markdown", Compared(predicted, predicted));
  };
  const std::string preset = told("strategy: ddp-last\nmachine: cpu\n");
  EXPECT_THAT(preset, HasSubstr("were predicted for the machine cpu, of which nothing was measured here"));
  EXPECT_THAT(preset, HasSubstr("tidemark calibrate --device cpu -o machine.yaml"));
  EXPECT_THAT(told("machine:\n  name: mine\n  kernel_launch: 2 us\n"), testing::Not(HasSubstr("calibrate")));
  EXPECT_THAT(told(""), testing::Not(HasSubstr("calibrate")));
  predicted.job_yaml = "machine: cpu\n";
  const auto of_predictions = MakeComparison(File("p.trace", predicted), File("m.trace", predicted));
  ASSERT_TRUE(of_predictions);
  EXPECT_FALSE(of_predictions->uncalibrated);
}

TEST(ComparisonReport, saysWhichClockMeasured) {
  const auto rendered = [](const char* clock, const char* format) {
    Trace measured = Play(Step());
    measured.clock = clock;
    return RenderAs(format, Compared(Play(Step()), measured));
  };
  for (const char* format : {"terminal", "markdown"}) {
    EXPECT_THAT(rendered("cupti", format), HasSubstr("CUPTI's records time"));
    EXPECT_THAT(rendered("device_events", format), HasSubstr("CUDA's events time"));
    EXPECT_THAT(rendered("host", format), HasSubstr("the host's clock times"));
    EXPECT_THAT(rendered("", format), testing::Not(HasSubstr("clock"))) << "nobody has said";
  }
  const auto json = nlohmann::json::parse(rendered("device_events", "json"));
  EXPECT_TRUE(json.at("predicted").at("clock").is_null());
  EXPECT_EQ(json.at("measured").at("clock"), "device_events");
}

TEST(ComparisonReport, namesSidesByTheirOriginAndSaysWhatIsIndependent) {
  const ComparisonReport report = Compared(Play(Step()), Play(Step()));
  EXPECT_EQ(report.predicted.label, "predicted");
  EXPECT_EQ(report.measured.label, "measured on cpu");
  EXPECT_THAT(report.comparison.independent, testing::ElementsAre("kernels", "device"));
  const auto json = nlohmann::json::parse(RenderAs("json", report));
  EXPECT_EQ(json.at("schema"), "tidemark.comparison/1");
  for (const char* key : {"peak_error_bytes", "peak_error_percent", "reserved_error_percent", "step_time_error_percent",
                          "phases", "unmatched", "causes", "independent"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_THAT(RenderAs("terminal", report), HasSubstr("The peaks of tensors agree to the byte"));
}

TEST(ComparisonReport, whatIsNotKnownIsNull) {
  Trace measured = Play(Step());
  for (MemoryEvent& event : measured.memory) {
    event.reserved_bytes = event.allocator_bytes = Bytes(0);
  }
  measured.step = Nanos(0);
  const auto json = nlohmann::json::parse(RenderAs("json", Compared(Play(Step()), measured)));
  EXPECT_TRUE(json.at("reserved_error_percent").is_null());
  EXPECT_TRUE(json.at("step_time_error_percent").is_null());
  EXPECT_EQ(json.at("peak_error_bytes"), 0);
}

TEST(ComparisonReport, otherNetworksAndOtherStagesAreRefused) {
  Trace one = Play(Step()), other = one;
  one.job_yaml = "network: {name: a, layers: 2}\nlayout: {pp: 1}\n";
  other.job_yaml = "network: {name: b, layers: 3}\nlayout: {pp: 1}\n";
  const auto network = MakeComparison(File("p", one), File("m", other));
  ASSERT_FALSE(network);
  EXPECT_THAT(network.error().message, HasSubstr("network.name is a in the first and b in the second"));
  other.job_yaml = "network: {name: a, layers: 2}\nlayout: {pp: 2}\n";
  const auto stages = MakeComparison(File("p", one), File("m", other));
  ASSERT_FALSE(stages);
  EXPECT_THAT(stages.error().message, HasSubstr("layout.pp is 1 in the first and 2 in the second"));
  other.job_yaml = "network: {name: a, layers: 2, dropout: 0}\nlayout: {pp: 1}\n";
  EXPECT_TRUE(MakeComparison(File("p", one), File("m", other)));
}

}  // namespace
}  // namespace tidemark::comparison_test
