// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/models/network_fixture.h"

namespace tidemark::network_qkv_views_test {
namespace {

using Sizes = std::map<std::string, std::int64_t>;

/// What attention saves of 2 x 16 tokens in bf16 where hidden is 64 and 4 heads are of 16.
Sizes SavedByAttention(std::int64_t kv_heads, bool views, bool packed) {
  Network network = WorkedNetwork();
  Decoder& d = std::get<Decoder>(network.shape);
  d.hidden = 64;
  d.heads = 4;
  d.head_size = 16;
  d.kv_heads = kv_heads;
  d.qkv_views = views;
  Partition partition = WorkedPartition(1, false);
  partition.micro_batch_size = 2;
  partition.sequence_length = 16;
  partition.packed_qkv = packed;
  Sizes saved = Saved(Build(network, partition).at(1).block);
  for (const char* other : {"norm1_in", "rstd1", "norm2_in", "rstd2", "gu_in", "gate_up", "down_in"}) {
    EXPECT_EQ(saved.erase(other), 1U) << other;
  }
  return saved;
}

// Read off transformers 5.24 under torch 2.15: GPTNeoXAttention and Phi3Attention, the latter with 2 heads of keys and
// values, with an attention that saves what a flash kernel does. Bytes of each storage that autograd's hooks for saved
// tensors were given, weights, sines and cosines aside. Rotated queries and keys are new tensors; values are a part of
// the product of all three.
TEST(NetworkQkvViews, SaveWhatTransformersSaves) {
  const std::int64_t hidden = 4096, kv = 2048;
  EXPECT_EQ(
      SavedByAttention(4, true, true),
      (Sizes{{"qkv_in", hidden}, {"q", hidden}, {"k", hidden}, {"qkv", 12288}, {"attn_out", hidden}, {"lse", 512}}));
  EXPECT_EQ(SavedByAttention(2, true, true),
            (Sizes{{"qkv_in", hidden}, {"q", hidden}, {"k", kv}, {"qkv", 8192}, {"attn_out", hidden}, {"lse", 512}}));
}

TEST(NetworkQkvViews, AreNoneWithoutAPackedProjection) {
  const Sizes apart = SavedByAttention(2, false, false);
  EXPECT_EQ(apart.at("v"), 2048);
  EXPECT_FALSE(apart.contains("qkv"));
  EXPECT_EQ(SavedByAttention(2, true, false), apart);
}

}  // namespace
}  // namespace tidemark::network_qkv_views_test
