// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/models/network_fixture.h"

// Expected bytes: n = 4096 tokens, h = 1024, f = 2816, a = 16, k = 4, c = h k / a = 256, t = tensor-parallel ranks. The
// table of a layer is that of Korthikanti et al. 2022 with flash attention, grouped queries and a gated feed-forward:
//   n/t (12h + 4c + 6f + 8 + 4a)                 sequence parallel, inputs gathered again; +2nf/t unfused GLU
//   + 2 (2nh - 2nh/t)                            gathered inputs kept
//   n (8h + 8) + n/t (4h + 4c + 6f + 4a)         without sequence parallelism
// With t = 1, bf16 and fp32, the sums were also read off a running PyTorch model (unique storages in saved tensors).

namespace tidemark::network_memory_test {
namespace {

Block Layer(const Partition& partition, const Network& network = WorkedNetwork()) {
  return Build(network, partition).at(1).block;
}

Block Head(const Partition& partition) { return Build(WorkedNetwork(), partition).at(2).block; }

TEST(LayerMemory, SavesTheWorkedSumsUnderSequenceParallelism) {
  Partition p = WorkedPartition(2, true);
  EXPECT_EQ(SavedTotal(Layer(p)), 62'013'440);
  p.fused_glu = false;
  EXPECT_EQ(SavedTotal(Layer(p)), 73'547'776);
  p.gathered = Partition::Gathered::kept;
  EXPECT_EQ(SavedTotal(Layer(p)), 81'936'384);
  p.fused_glu = true;
  EXPECT_EQ(SavedTotal(Layer(p)), 70'402'048);
}

TEST(LayerMemory, SavesTheWorkedSumsWithoutSequenceParallelism) {
  Partition p = WorkedPartition(2, false);
  EXPECT_EQ(SavedTotal(Layer(p)), 78'807'040);
  p.fused_glu = false;
  EXPECT_EQ(SavedTotal(Layer(p)), 90'341'376);
}

TEST(LayerMemory, SavesWhatAFrameworkSavesOnOneRank) {
  Partition p = WorkedPartition(1, false);
  EXPECT_EQ(SavedTotal(Layer(p)), 124'026'880);
  p.fused_glu = false;
  EXPECT_EQ(SavedTotal(Layer(p)), 147'095'552);
  p.fused_glu = true;
  p.compute = DType::fp32;
  EXPECT_EQ(SavedTotal(Layer(p)), 247'758'848);
}

TEST(LayerMemory, SavesTheSameWhateverIsPacked) {
  for (const bool qkv : {false, true}) {
    for (const bool gate_up : {false, true}) {
      for (const bool fused : {false, true}) {
        Partition p = WorkedPartition(2, true);
        p.packed_qkv = qkv;
        p.packed_gate_up = gate_up;
        p.fused_glu = fused;
        EXPECT_EQ(SavedTotal(Layer(p)), fused ? 62'013'440 : 73'547'776) << qkv << gate_up;
      }
    }
  }
}

// Of rotated queries and keys the backward pass needs what is rotated, not what was.
TEST(LayerMemory, SavesTheSameWhereverQueriesAreRotated) {
  Partition p = WorkedPartition(2, true);
  p.fused_rope = false;
  for (const bool packed : {false, true}) {
    p.packed_qkv = packed;
    EXPECT_EQ(SavedTotal(Layer(p)), 62'013'440);
  }
}

TEST(LayerMemory, SavesTheWorkedTensorsOneByOne) {
  const std::map<std::string, std::int64_t> expected = {
      {"norm1_in", 4'194'304}, {"rstd1", 8'192},        {"qkv_in", 4'194'304},  // 2nh/t, 4n/t, 2nh/t
      {"q", 4'194'304},        {"k", 1'048'576},        {"v", 1'048'576},       // 2nh/t, 2nc/t, 2nc/t
      {"attn_out", 4'194'304}, {"lse", 131'072},                                // 2nh/t, 4na/t
      {"norm2_in", 4'194'304}, {"rstd2", 8'192},        {"gu_in", 4'194'304},   // 2nh/t, 4n/t, 2nh/t
      {"gate_up", 23'068'672}, {"down_in", 11'534'336},                         // 4nf/t, 2nf/t
  };
  EXPECT_EQ(Saved(Layer(WorkedPartition(2, true))), expected);

  Partition cached = WorkedPartition(2, true);
  cached.gathered = Partition::Gathered::kept;
  auto kept = expected;
  kept["qkv_in"] = kept["gu_in"] = 8'388'608;  // 2nh, gathered
  EXPECT_EQ(Saved(Layer(cached)), kept);

  auto unsharded = expected;
  for (const char* name : {"norm1_in", "norm2_in", "qkv_in", "gu_in", "rstd1", "rstd2"}) {
    unsharded[name] *= 2;
  }
  EXPECT_EQ(Saved(Layer(WorkedPartition(2, false))), unsharded);
}

TEST(LayerMemory, KeepsThePooledGatherOutOfEveryOtherCategory) {
  const Block again = Layer(WorkedPartition(2, true));
  int pooled = 0;
  for (const Tensor& tensor : again.tensors) {
    if (!tensor.pool.empty()) {
      ++pooled;
      EXPECT_EQ(tensor.pool, "tp_gather");
      EXPECT_EQ(SizeInBytes(tensor), 8'388'608);  // 2nh
      EXPECT_EQ(tensor.category, Category::tp_gather);
    }
  }
  EXPECT_EQ(pooled, 4);  // both column inputs, gathered forward and again: all in the one block
  Partition one = WorkedPartition(1, true);
  for (const Tensor& tensor : Layer(one).tensors) {
    EXPECT_NE(tensor.category, Category::tp_gather) << tensor.name;
  }
}

TEST(LayerMemory, KeepsTheOwnRowsWhereTheGatherRunsBesideProducts) {
  // As with the gather done again into a pool (62,013,440 with a fused GLU): only the shard 2nh/t is saved.
  const Partition async = AsyncPartition();
  EXPECT_EQ(Saved(Layer(async)), Saved(Layer(WorkedPartition(2, true))));
  int gathered = 0;
  for (const Tensor& tensor : Layer(async).tensors) {
    EXPECT_TRUE(tensor.pool.empty()) << tensor.name;
    gathered += tensor.category == Category::tp_gather ? 1 : 0;
  }
  EXPECT_EQ(gathered, 6);  // X twice for each of two column inputs, dY for each of two row outputs: all transient
}

TEST(LayerMemory, MakesTheScratchOfFlashAttentionsBackward) {
  const Block layer = Layer(WorkedPartition(2, true));
  std::map<std::string, std::int64_t> sizes;
  for (const Tensor& tensor : layer.tensors) {
    sizes[tensor.name] = SizeInBytes(tensor);
  }
  EXPECT_EQ(sizes["dq"], 4'194'304);  // as q
  EXPECT_EQ(sizes["dk"], 1'048'576);  // as k
  EXPECT_EQ(sizes["dv"], 1'048'576);
  EXPECT_EQ(sizes["dq_accumulator"], 8'388'608);  // 4nh/t, fp32
  EXPECT_EQ(sizes["delta"], 131'072);             // 4na/t
  EXPECT_EQ(sizes["d_down_out"], 8'388'608);      // dY gathered, 2nh
  EXPECT_EQ(sizes["d_qkv_in"], 8'388'608);        // dX before its scatter, 2nh
}

Network GptStyle() {
  Network network = WorkedNetwork();
  auto& d = std::get<Decoder>(network.shape);
  d.ffn = 4096;
  d.kv_heads = 16;
  d.norm = Decoder::Norm::layer;
  d.ffn_kind = Decoder::Ffn::two_layer;
  d.rope = false;
  d.qkv_bias = d.linear_bias = true;
  d.positions = 2048;
  d.dropout = 0.1;
  return network;
}

TEST(LayerMemory, SavesKorthikantisSumForGptStyleLayers) {
  // sbh(34 + 5as/h) with 5as/h gone to flash attention, which keeps lse 4na; means and rstds of two norms are 16n.
  EXPECT_EQ(SavedTotal(Layer(WorkedPartition(1, false), GptStyle())), 142'606'336 + 262'144 + 65'536);
  // sbh(10 + 24/t): norm inputs, linear inputs and masks are not divided without sequence parallelism.
  EXPECT_EQ(SavedTotal(Layer(WorkedPartition(2, false), GptStyle())), 22 * 4'194'304 + 131'072 + 65'536);
  // sbh 34/t, all divided.
  EXPECT_EQ(SavedTotal(Layer(WorkedPartition(2, true), GptStyle())), (142'606'336 + 262'144 + 65'536) / 2);
}

TEST(LayerMemory, SavesNoInputOfARelu) {
  Network network = GptStyle();
  const std::int64_t gelu = SavedTotal(Layer(WorkedPartition(1, false), network));
  std::get<Decoder>(network.shape).relu = true;
  EXPECT_EQ(gelu - SavedTotal(Layer(WorkedPartition(1, false), network)), 2 * 4096 * 4096);  // 2nf
}

TEST(LayerMemory, ReadsOneResidualInputInAParallelLayer) {
  Network network = GptStyle();
  std::get<Decoder>(network.shape).parallel_residual = true;
  // Both norms read the layer's input: there is no second residual tensor of 2nh.
  EXPECT_EQ(SavedTotal(Layer(WorkedPartition(1, false), network)), 142'606'336 + 262'144 + 65'536 - 8'388'608);
}

TEST(HeadMemory, PeaksAsTheSoftmaxSavingLossDoes) {
  // In units of nV/t bytes: logits 2, cast 4, softmax 4 in the forward pass; 4 kept; the backward pass adds 2.
  Partition p = WorkedPartition(2, true);
  p.loss = Partition::Loss::softmax_saving;
  const CategoryPeaks peaks = PeaksOf(Head(p), Category::logits);
  EXPECT_EQ(peaks.forward, 655'360'000);
  EXPECT_EQ(peaks.between, 262'144'000);
  EXPECT_EQ(peaks.all, 655'360'000);
}

TEST(HeadMemory, PeaksInTheBackwardOfCrossEntropyOnUpcastLogits) {
  // Read off a running PyTorch, nV = 131,072,000: forward 8, kept 4, highest 12 (1,572,864,000) in the backward pass.
  const Partition p = WorkedPartition(1, false);
  const CategoryPeaks peaks = PeaksOf(Head(p), Category::logits);
  EXPECT_EQ(peaks.forward, 8 * 131'072'000LL);
  EXPECT_EQ(peaks.between, 4 * 131'072'000LL);
  EXPECT_EQ(peaks.all, 1'572'864'000);
}

TEST(HeadMemory, HasNoCastsForAnFp32Network) {
  Partition p = WorkedPartition(1, false);  // read off a running PyTorch: 8, 4, 12
  p.compute = DType::fp32;
  const CategoryPeaks peaks = PeaksOf(Head(p), Category::logits);
  EXPECT_EQ(peaks.forward, 8 * 131'072'000LL);
  EXPECT_EQ(peaks.between, 4 * 131'072'000LL);
  EXPECT_EQ(peaks.all, 12 * 131'072'000LL);
}

TEST(HeadMemory, SavesItsNormAndLinearInput) {
  const auto saved = Saved(Head(WorkedPartition(2, true)));
  EXPECT_EQ(saved.at("norm_in"), 4'194'304);  // 2nh/t
  EXPECT_EQ(saved.at("rstd"), 8'192);         // 4n/t
  EXPECT_EQ(saved.at("head_in"), 4'194'304);  // 2nh/t
  EXPECT_EQ(saved.size(), 4u);                // and the loss's own 4nV/t, above
}

TEST(EmbeddingMemory, SavesTheIdsOnly) {
  const Block embedding = Build(WorkedNetwork(), WorkedPartition(2, true)).at(0).block;
  ASSERT_EQ(embedding.loaded.size(), 1u);
  EXPECT_EQ(SizeInBytes(embedding.tensors.at(embedding.loaded.front().index)), 32'768);  // 8n
  EXPECT_EQ(SavedTotal(embedding), 0);
  EXPECT_EQ(embedding.tensors.at(embedding.output.index).elements, 4096 / 2 * 1024);
}

TEST(EmbeddingMemory, KeepsItsDropoutMask) {
  const Block embedding = Build(GptStyle(), WorkedPartition(1, false)).at(0).block;
  EXPECT_EQ(SavedTotal(embedding), 4'194'304);  // nh, one byte each
}

}  // namespace
}  // namespace tidemark::network_memory_test
