// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>

#include "tests/models/network_fixture.h"

// Expected bytes: those of Transformer Engine's ring (models/network/ring_attention.h), in Q = 2 n h / p and KV =
// 2 x 2 n c / p bytes of n = 4096 tokens, h = 1024 and c = 256 on p ranks.

namespace tidemark::network_ring_test {
namespace {

constexpr std::int64_t kQ = 2 * 4096 * 1024, kKv = 2 * 2 * 4096 * 256;

Block Layer(std::int64_t ranks, std::int64_t sequences = 1) {
  Partition p = WorkedPartition(1, false);
  p.cp = ranks;
  p.micro_batch_size = sequences;
  p.sequence_length = 4096 / sequences / ranks;
  return Build(WorkedNetwork(), p).at(1).block;
}

/// Most bytes at once of tensors of these names, when one lives from the first action that writes it to the last that
/// touches it.
std::int64_t Peak(const Block& block, const std::function<bool(const std::string&)>& is_one) {
  Block named = block;
  for (Tensor& tensor : named.tensors) {
    tensor.category = is_one(tensor.name) ? Category::workspace : Category::activation;
  }
  return PeaksOf(named, Category::workspace).all;
}

bool EndsWith(const std::string& name, std::initializer_list<const char*> suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(), [&](const char* suffix) { return name.ends_with(suffix); });
}

std::int64_t MessageBytes(const std::vector<Action>& pass, CollectiveKind kind) {
  std::int64_t bytes = 0;
  for (const Action& action : pass) {
    if (const auto* shift = std::get_if<Communicate>(&action); shift != nullptr && shift->kind == kind) {
      EXPECT_TRUE(shift->asynchronous);
      EXPECT_EQ(shift->among, Among::context_parallel);
      bytes += (SizeOf(shift->dtype) * shift->payload_elements).count();
    }
  }
  return bytes;
}

TEST(RingAttention, SavesWhatAttentionToOwnKeysWould) {
  for (const std::int64_t ranks : {2, 4, 8}) {
    EXPECT_EQ(SavedTotal(Layer(ranks)) * ranks, SavedTotal(Layer(1))) << ranks;
    EXPECT_EQ(SavedTotal(Layer(ranks, 2)) * ranks, SavedTotal(Layer(1, 2)) + kQ) << "and the output by sequence";
  }
  EXPECT_FALSE(Saved(Layer(2)).contains("ring_k")) << "only the keys that came last";
}

TEST(RingAttention, KeepsEveryStepsKeysAndOutputsUntilItReturns) {
  for (const std::int64_t p : {2, 4, 8}) {
    const Block layer = Layer(p);
    const auto in_forward = [](const std::string& name) {
      return EndsWith(name, {"_ring_kv", "_ring_out", "attn_out", "ring_k", "ring_v"});
    };
    EXPECT_EQ(Peak(layer, in_forward), ((p + 1) * kKv + (p + 1) * kQ) / p) << p;
    const auto in_backward = [](const std::string& name) {
      const bool summed = name.starts_with("dq") && !name.starts_with("dq_accumulator");
      return summed || name.starts_with("dk_") || name.starts_with("dv_") || EndsWith(name, {"_back_kv", "_back_d_kv"});
    };
    EXPECT_EQ(Peak(layer, in_backward), (5 * kKv + 2 * kQ) / p) << p << ": two pairs, and one step's gradients";
  }
}

TEST(RingAttention, HandsKeysRoundAndTheirGradientsOneStepBehind) {
  for (const std::int64_t p : {2, 4, 8}) {
    const Block layer = Layer(p);
    EXPECT_EQ(MessageBytes(layer.forward, CollectiveKind::shift_up), (p - 1) * kKv / p) << p;
    EXPECT_EQ(MessageBytes(layer.backward, CollectiveKind::shift_down), 2 * (p - 1) * kKv / p) << p;
  }
}

// Each pair of ranks has half of its pairs of tokens under a causal mask, whichever of them the queries are on.
TEST(RingAttention, CountsAsManyOperationsOnAllRanksAsOneRankWithoutIt) {
  const auto flops = [](const Block& block) {
    double sum = 0;
    for (const auto* pass : {&block.forward, &block.backward}) {
      for (const Action& action : *pass) {
        const auto* kernel = std::get_if<Calculate>(&action);
        if (kernel != nullptr && std::holds_alternative<Attention>(kernel->op)) {
          sum += static_cast<double>(FlopsOf(kernel->op).count());
        }
      }
    }
    return sum;
  };
  for (const std::int64_t ranks : {2, 4, 8}) {
    EXPECT_EQ(flops(Layer(ranks)) * static_cast<double>(ranks), flops(Layer(1))) << ranks;
  }
}

TEST(RingAttention, OverlapsAStepWithTheNextKeysMessage) {
  EXPECT_EQ(Between(Layer(2).forward, "attention.stack", "attention.return"),
            (std::vector<std::string>{"attention.stack", "attention.shift_0", "attention.forward_0",
                                      "attention.shift_0.await", "attention.forward_1", "attention.merge_0",
                                      "attention.merge_1", "attention.return"}));
  EXPECT_EQ(Between(Layer(2).backward, "attention.begin", "attention.views"),
            (std::vector<std::string>{"attention.begin", "attention.kv_back", "attention.shift_back_1",
                                      "attention.backward_1", "attention.shift_back_1.await", "attention.sum_dq_1",
                                      "attention.sum_dkv_1", "attention.shift_back_0", "attention.backward_0",
                                      "attention.shift_back_0.await", "attention.sum_dq_0", "attention.sum_dkv_0",
                                      "attention.end", "attention.unstack", "attention.views"}));
}

}  // namespace
}  // namespace tidemark::network_ring_test
