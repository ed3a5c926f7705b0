// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/models/network_fixture.h"

// Expected sizes: those of Megatron-LM core's experts (models/network/megatron_experts.h), worked out by hand for n =
// 4096 tokens, h = 1024, and 8 experts of f = 512, two for each token.

namespace tidemark::network_experts_test {
namespace {

constexpr std::int64_t kTokens = 4096, kHidden = 1024, kFfn = 512, kRows = 2 * kTokens;

Network WithExperts(const std::function<void(Experts&)>& change = {}) {
  Network network = WorkedNetwork();
  Experts& experts = std::get<Decoder>(network.shape).experts;
  experts.count = 8;
  experts.per_token = 2;
  experts.ffn = kFfn;
  if (change) {
    change(experts);
  }
  return network;
}

Partition Over(std::int64_t ep, std::int64_t etp = 1, std::int64_t tp = 1) {
  Partition p = WorkedPartition(tp, tp > 1);
  p.ep = ep;
  p.etp = etp;
  return p;
}

Block Layer(const Network& network, const Partition& partition) { return Build(network, partition).at(1).block; }

/// Of those tensors that the feed-forward part of a layer has and its attention has not.
std::int64_t SavedByExperts(const Block& block) {
  std::int64_t total = 0;
  for (const auto& [name, bytes] : Saved(block)) {
    const bool of_attention = name == "norm1_in" || name == "rstd1" || name == "qkv_in" || name == "q" || name == "k" ||
                              name == "v" || name == "attn_out" || name == "lse";
    total += of_attention ? 0 : bytes;
  }
  return total;
}

const Parameter& Named(const Block& block, const std::string& name) {
  const auto found = std::find_if(block.parameters.begin(), block.parameters.end(),
                                  [&](const Parameter& parameter) { return parameter.name == name; });
  EXPECT_NE(found, block.parameters.end()) << name;
  return *found;
}

struct Message {
  std::int64_t count = 0, bytes = 0;
};

Message Sent(const std::vector<Action>& pass, CollectiveKind kind, Among among) {
  Message sent;
  for (const Action& action : pass) {
    const auto* message = std::get_if<Communicate>(&action);
    if (message != nullptr && message->kind == kind && message->among == among) {
      ++sent.count;
      sent.bytes += (SizeOf(message->dtype) * message->payload_elements).count();
    }
  }
  return sent;
}

std::int64_t ProductFlops(const Block& block, const std::string& prefix) {
  std::int64_t flops = 0;
  for (const auto* pass : {&block.forward, &block.backward}) {
    for (const Action& action : *pass) {
      const auto* kernel = std::get_if<Calculate>(&action);
      if (kernel != nullptr && std::holds_alternative<Gemm>(kernel->op) && kernel->name.starts_with(prefix)) {
        flops += FlopsOf(kernel->op).count();
      }
    }
  }
  return flops;
}

TEST(Experts, SaveWhatTheirFormulaSays) {
  // The layer's middle 2 h and its norm's rstd 4 per token; the norm's output 2 h; of the router its weights (2 bytes)
  // and mask (1) of 8 experts, scores (4) and numbers (8) of two chosen ones; the dispatcher's numbers of 8 bytes, of 8
  // experts and of two rows; how many rows each expert has; per row h, what the first product makes 2 f, what the
  // second reads f, and its weight.
  const std::int64_t per_token = 2 * kHidden + 4 + 2 * kHidden + 3 * 8 + 12 * 2 + 8 * 8 + 8 * 2;
  const std::int64_t per_row = 2 * (kHidden + 2 * kFfn + kFfn) + 2;
  EXPECT_EQ(SavedByExperts(Layer(WithExperts(), Over(1))), kTokens * per_token + 8 * 8 + kRows * per_row);
}

TEST(Experts, SaveMoreWhereActivationAndWeightsAreTwoKernels) {
  Partition eager = Over(1);
  eager.fused_glu = false;
  EXPECT_EQ(SavedTotal(Layer(WithExperts(), eager)) - SavedTotal(Layer(WithExperts(), Over(1))), kRows * 2 * kFfn * 2)
      << "the activated half, and its product with the other";
}

TEST(Experts, ComputeAsMuchAsADenseLayerOfWidthKF) {
  Network dense = WorkedNetwork();
  std::get<Decoder>(dense.shape).ffn = 2 * kFfn;
  const Block block = Layer(dense, Over(1));
  const std::int64_t all = ProductFlops(block, "gate_up") + ProductFlops(block, "down");
  for (const std::int64_t ep : {1, 2, 8}) {
    EXPECT_EQ(ProductFlops(Layer(WithExperts(), Over(ep)), "experts_"), all) << ep;
  }
}

TEST(Experts, AreDividedOverRanks) {
  for (const std::int64_t ep : {1, 2, 8}) {
    const Block block = Layer(WithExperts(), Over(ep));
    EXPECT_EQ(Named(block, "experts_up").elements, 8 / ep * 2 * kFfn * kHidden);
    EXPECT_EQ(Named(block, "experts_down").elements, 8 / ep * kFfn * kHidden);
    EXPECT_EQ(Named(block, "experts_down").elements_full, 8 * kFfn * kHidden);
    EXPECT_EQ(Named(block, "router").elements, 8 * kHidden);
  }
}

TEST(Experts, SendEveryRowThereAndBack) {
  const Block alone = Layer(WithExperts(), Over(1)), block = Layer(WithExperts(), Over(4));
  const auto there_and_back = 2 * kRows * kHidden * 2;
  for (const auto* pass : {&block.forward, &block.backward}) {
    const Message sent = Sent(*pass, CollectiveKind::all_to_all, Among::expert_parallel);
    EXPECT_EQ(sent.count, 3) << "rows, their weights, and rows";
    EXPECT_EQ(sent.bytes, there_and_back + kRows * 2);
  }
  EXPECT_EQ(Sent(alone.forward, CollectiveKind::all_to_all, Among::expert_parallel).count, 0);
}

/// Most bytes at once, in the forward pass, of tensors with these names.
std::int64_t ForwardPeak(Block block, const std::set<std::string>& names) {
  for (Tensor& tensor : block.tensors) {
    tensor.category = names.contains(tensor.name) ? Category::workspace : Category::activation;
  }
  return PeaksOf(block, Category::workspace).forward;
}

// Rows as they are sent and as they come have names until the layer returns; beside them those that are sorted, and two
// more on their way back.
TEST(Experts, HoldFiveTimesTheirRowsOnTheirWay) {
  const std::set<std::string> rows = {"permuted_rows", "dispatched_rows", "sorted_rows",
                                      "experts_out",   "unsorted_rows",   "combined"};
  EXPECT_EQ(ForwardPeak(Layer(WithExperts(), Over(4)), rows), 5 * kRows * kHidden * 2);
  EXPECT_EQ(ForwardPeak(Layer(WithExperts(), Over(8)), rows), 4 * kRows * kHidden * 2) << "one expert needs no sorting";
}

TEST(Experts, OfTensorParallelRanksAreWholeOrInParts) {
  // On two ranks with 2048 rows of the residual stream each.
  const Block parts = Layer(WithExperts(), Over(2, 2, 2));
  EXPECT_EQ(Named(parts, "experts_down").elements, 4 * kFfn / 2 * kHidden);
  const Message gathered = Sent(parts.forward, CollectiveKind::all_gather, Among::expert_tensor_parallel);
  EXPECT_EQ(gathered.count, 2);
  EXPECT_EQ(gathered.bytes, kRows * kHidden * 2 + kRows * 2) << "of both ranks";
  EXPECT_EQ(Sent(parts.forward, CollectiveKind::reduce_scatter, Among::expert_tensor_parallel).count, 1);
  EXPECT_EQ(Sent(parts.forward, CollectiveKind::all_to_all, Among::expert_parallel).bytes,
            2 * kRows / 2 * kHidden * 2 + kRows / 2 * 2);
  const Block whole = Layer(WithExperts(), Over(2, 1, 2));
  EXPECT_EQ(Named(whole, "experts_down").elements, 4 * kFfn * kHidden);
  EXPECT_EQ(Sent(whole.forward, CollectiveKind::all_gather, Among::expert_tensor_parallel).count, 0);
  EXPECT_EQ(ProductFlops(whole, "experts_"), ProductFlops(parts, "experts_"));
}

TEST(Experts, GatherAllTokensWithTheOtherDispatcher) {
  const Network network = WithExperts([](Experts& e) { e.dispatcher = Experts::Dispatcher::all_gather; });
  const Block block = Layer(network, Over(4));
  const Message gathered = Sent(block.forward, CollectiveKind::all_gather, Among::expert_parallel);
  EXPECT_EQ(gathered.count, 3) << "the mask, weights, tokens";
  EXPECT_EQ(gathered.bytes, 4 * kTokens * (8 + 2 * 8 + 2 * kHidden));
  EXPECT_EQ(Sent(block.forward, CollectiveKind::reduce_scatter, Among::expert_parallel).bytes,
            4 * kTokens * kHidden * 2);
  EXPECT_EQ(Sent(block.backward, CollectiveKind::reduce_scatter, Among::expert_parallel).bytes,
            4 * kTokens * (2 * kHidden + 2 * 8));
  const Network wide = WithExperts([](Experts& e) {
    e.dispatcher = Experts::Dispatcher::all_gather;
    e.router_fp32 = true;
  });
  EXPECT_EQ(Sent(Layer(wide, Over(4)).forward, CollectiveKind::reduce_scatter, Among::expert_parallel).bytes,
            4 * kTokens * kHidden * 4)
      << "summed in the dtype of the weights";
  for (const Action& action : Layer(network, Over(1)).forward) {
    EXPECT_FALSE(std::holds_alternative<Communicate>(action)) << NameOf(action);
  }
}

// reduce_scatter(hidden.to(probs.dtype)).to(hidden.dtype) in the forward pass, and so a gather in fp32 in the other.
TEST(Experts, AreSummedInTheDtypeOfTheRouter) {
  const Network wide = WithExperts([](Experts& e) { e.router_fp32 = true; });
  const Block block = Layer(wide, Over(2, 2, 2));
  EXPECT_EQ(Sent(block.forward, CollectiveKind::reduce_scatter, Among::expert_tensor_parallel).bytes,
            kRows * kHidden * 4);
  EXPECT_EQ(Sent(block.backward, CollectiveKind::all_gather, Among::expert_tensor_parallel).bytes, kRows * kHidden * 4);
}

TEST(Experts, OfTheFullestRankHaveItsShareOfRows) {
  const Network network = WithExperts([](Experts& e) { e.imbalance = 1.5; });
  const auto rows = [](const Block& block) {
    const auto found = std::find_if(block.tensors.begin(), block.tensors.end(),
                                    [](const Tensor& tensor) { return tensor.name == "experts_down_in"; });
    return found->elements / kFfn;
  };
  EXPECT_EQ(rows(Layer(network, Over(2))), kRows * 3 / 2);
  EXPECT_EQ(rows(Layer(network, Over(1))), kRows) << "all experts are on this rank";
}

TEST(Experts, SharedOnesAreADenseLayerBesideThem) {
  const Network network = WithExperts([](Experts& e) { e.shared_ffn = 256; });
  const Block with = Layer(network, Over(1)), without = Layer(WithExperts(), Over(1));
  EXPECT_EQ(SavedTotal(with) - SavedTotal(without), kTokens * 2 * (2 * 256 + 256)) << "their input is saved already";
  EXPECT_EQ(ProductFlops(with, "shared_"), 3 * 2 * kTokens * kHidden * (2 * 256 + 256));
  const Network gated = WithExperts([](Experts& e) {
    e.shared_ffn = 256;
    e.shared_gate = true;
  });
  EXPECT_EQ(SavedTotal(Layer(gated, Over(1))) - SavedTotal(with), kTokens * 2 * (kHidden + 1))
      << "what they make, and the gate";
}

// From the model's card: 46.7 billion parameters. By hand: 32 layers of 41,943,040 of attention, 8 x 3 x 4096 x 14336
// of experts, a router of 8 x 4096 and two norms; embedding and head of 32000 x 4096 each and a norm.
TEST(Experts, OfMixtralAreAsManyParametersAsItsCardSays) {
  Network network = WorkedNetwork();
  auto& d = std::get<Decoder>(network.shape);
  d.layers = 32;
  d.hidden = 4096;
  d.heads = 32;
  d.kv_heads = 8;
  d.head_size = 128;
  d.experts.count = 8;
  d.experts.ffn = 14336;
  EXPECT_EQ(ParameterCount(network), 46'702'792'704);
}

TEST(Experts, RefuseWhatDoesNotFit) {
  const auto refusal = [](const std::function<void(Experts&)>& change, const Partition& partition) {
    return Refusal(WithExperts(change), partition);
  };
  EXPECT_NE(refusal([](Experts& e) { e.per_token = 9; }, Over(1)).find("per_token"), std::string::npos);
  EXPECT_NE(refusal([](Experts& e) { e.ffn = 0; }, Over(1)).find("experts.ffn"), std::string::npos);
  EXPECT_NE(refusal({}, Over(3)).find("layout.ep"), std::string::npos);
  EXPECT_NE(refusal([](Experts& e) { e.imbalance = 2.1; }, Over(2)).find("at most 2 times"), std::string::npos);
  EXPECT_NE(refusal([](Experts& e) { e.imbalance = 4.1; }, Over(8)).find("at most 4 times"), std::string::npos)
      << "two different ranks for each token";
  EXPECT_NE(refusal([](Experts& e) { e = {.count = 0, .per_token = 4}; }, Over(1)).find("there are none"),
            std::string::npos);
  EXPECT_NE(refusal([](Experts& e) { e.count = 1 << 13; }, Over(1)).find("experts.count between"), std::string::npos);
  EXPECT_NE(refusal([](Experts& e) { e.shared_gate = true; }, Over(1)).find("shared_ffn"), std::string::npos);
}

}  // namespace
}  // namespace tidemark::network_experts_test
