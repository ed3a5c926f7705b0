// SPDX-License-Identifier: Apache-2.0
// Gradients are the slope of the loss: what is known of any network, whatever its layers do.
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/optimizer.h"
#include "models/job/validate.h"
#include "tests/profiler/execute/executed_job.h"

namespace tidemark::slope_test {
namespace {

struct Sloping {
  std::string name;
  std::function<void(Decoder&)> change;

  friend std::ostream& operator<<(std::ostream& out, const Sloping& s) { return out << s.name; }
};

constexpr double kRate = kernels::Sgd{}.lr;
constexpr double kRounding = 5e-15;  // of two losses of about 6
constexpr std::int64_t kTokens = 16;

/// A small network on one rank that learns one sample again and again.
Job JobOf(const Sloping& sloping) {
  Job job = SmallJob("ddp-every");
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = 1;
  decoder.hidden = 32;
  decoder.ffn = 48;
  decoder.head_size = 8;
  decoder.vocabulary = 256;
  sloping.change(decoder);
  job.sequence_length = kTokens;
  job.micro_batch_size = job.accumulation_steps = 1;
  job.optimizer = OptimizerKind::sgd;
  return job;
}

/// "layer.wq": all but second uses.
std::vector<std::string> ParametersOf(const Job& job) {
  std::vector<std::string> names;
  const std::vector<BlockRun> runs = *BuildBlocks(job.network, PartitionOf(job));
  for (const BlockRun& run : runs) {
    for (const Parameter& parameter : run.block.parameters) {
      if (!parameter.tied) {
        names.push_back(run.block.name + "." + parameter.name);
      }
    }
  }
  return names;
}

/// Two steps, and the gradients of one of them. Of a text as long as a sequence and its last label every sample is the
/// same.
RunOutcome TwoSteps(const Job& job, std::int64_t kept) {
  RunOptions options = Exact();
  options.text = "tides turn at six";
  EXPECT_EQ(std::ssize(options.text), kTokens + 1);
  options.kept_update = kept;
  return Executed(job, 2, options);
}

double Product(const ParameterParts& left, const ParameterParts& right) {
  double sum = 0;
  for (const auto& [parameter, parts] : left) {
    const auto& others = right.at(parameter);
    for (const auto& [part, values] : parts) {
      const auto& theirs = others.at(part);
      for (std::size_t i = 0; i < values.size(); ++i) {
        sum += values[i] * theirs[i];
      }
    }
  }
  return sum;
}

class Slope : public testing::TestWithParam<Sloping> {};

// Gradient descent by one parameter is a straight line from its values w to w - r g(w). Along it the loss falls by the
// integral of r g(w) g, which the trapezoid of both ends gives but for a term in r cubed. A gradient that is of
// something else falls short of g(w) g(w), or exceeds it. What a key's bias adds to all scores of a query the softmax
// takes away again.
TEST_P(Slope, TheLossFallsByWhatGradientsSay) {
  Job job = JobOf(GetParam());
  for (const std::string& name : ParametersOf(job)) {
    job.network.trainable = {name};
    const RunOutcome first = TwoSteps(job, 1), second = TwoSteps(job, 2);
    const double fell = *first.steps.at(0).loss - *first.steps.at(1).loss;
    const double said =
        kRate * (Product(first.gradients, first.gradients) + Product(first.gradients, second.gradients)) / 2;
    if (name == "layer.wk_bias") {
      EXPECT_LT(said, 1e-20);
      continue;
    }
    EXPECT_GT(said, 10 * kRounding) << name << " learns nothing";
    EXPECT_NEAR(fell, said, 1e-3 * said + kRounding) << name;
  }
}

using Placement = Decoder::NormPlacement;
using Kernel = Decoder::NormKernel;

/// To all of which each token goes: where it goes to others, the loss jumps.
void AddExperts(Decoder& d) { d.experts = {.count = 3, .per_token = 3, .ffn = 48}; }

const std::vector<Sloping> kSloping = {
    {"plain", [](Decoder&) {}},
    {"tied", [](Decoder& d) { d.tied_embeddings = true; }},
    {"gpt2",
     [](Decoder& d) {
       d.norm = Decoder::Norm::layer;
       d.ffn_kind = Decoder::Ffn::two_layer;
       d.rope = false;
       d.positions = kTokens;
       d.qkv_bias = d.linear_bias = true;
     }},
    {"neox",
     [](Decoder& d) {
       d.norm = Decoder::Norm::layer;
       d.parallel_residual = true;
       d.qkv_views = true;
     }},
    {"norms_of_outputs", [](Decoder& d) { d.norm_placement = Placement::outputs; }},
    {"norms_of_both", [](Decoder& d) { d.norm_placement = Placement::both; }},
    {"parallel_norms_of_outputs",
     [](Decoder& d) {
       d.norm_placement = Placement::outputs;
       d.parallel_residual = true;
     }},
    {"heads_normalised", [](Decoder& d) { d.qk_norm = true; }},
    {"all_heads_normalised",
     [](Decoder& d) {
       d.norm_placement = Placement::outputs;
       d.qk_norm = true;
       d.qk_norm_over = Decoder::QkNormOver::all_heads;
     }},
    {"eager_norms", [](Decoder& d) { d.norm_kernel = Kernel::eager; }},
    {"eager_fp32_weight_norms_of_both",
     [](Decoder& d) {
       d.norm_kernel = Kernel::eager_fp32_weight;
       d.norm_placement = Placement::both;
     }},
    {"eager_low_precision_norms", [](Decoder& d) { d.norm_kernel = Kernel::eager_low_precision; }},
    {"eager_attention", [](Decoder& d) { d.attention_kernel = Decoder::AttentionKernel::eager_fp32_softmax; }},
    {"windows_and_none",
     [](Decoder& d) {
       d.layers = 2;
       d.sliding_window = 3;
       d.full_attention_every = 2;
     }},
    {"windows_of_eager_attention",
     [](Decoder& d) {
       d.attention_kernel = Decoder::AttentionKernel::eager;
       d.sliding_window = 5;
     }},
    {"angles_of_pairs", [](Decoder& d) { d.rotary_table = Decoder::RotaryTable::pairs; }},
    {"angles_of_elements", [](Decoder& d) { d.rotary_table = Decoder::RotaryTable::elements; }},
    {"latent",
     [](Decoder& d) {
       d.kv_heads = d.heads;
       d.latent = {.kv_lora_rank = 20, .q_lora_rank = 24, .rope_head_size = 4, .value_head_size = 10};
     }},
    {"experts", &AddExperts},
    {"experts_and_shared_ones_behind_norms_of_both",
     [](Decoder& d) {
       AddExperts(d);
       d.layers = 2;
       d.experts.shared_ffn = 32;
       d.experts.shared_gate = true;
       d.experts.dense_layers = 1;
       d.norm_placement = Placement::both;
     }},
    {"torchtitan_experts",
     [](Decoder& d) {
       AddExperts(d);
       d.experts.layer = Experts::Layer::torchtitan;
       d.experts.router_fp32 = true;
       d.experts.shared_ffn = 32;
     }},
};

INSTANTIATE_TEST_SUITE_P(Networks, Slope, testing::ValuesIn(kSloping),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace tidemark::slope_test
