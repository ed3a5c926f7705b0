// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/models/network_fixture.h"

namespace tidemark::network_rotation_test {
namespace {

// As PyTorch's allocations of tests/gpu/judge/decoder.py show (aten.empty_like < turned).
TEST(NetworkRotation, IntoNewTensorsFollowsEachProjectionAndPrecedesItsGradients) {
  Partition p = WorkedPartition(1, false);
  p.fused_rope = false;
  const Block layer = Build(WorkedNetwork(), p).at(1).block;
  EXPECT_EQ(Between(layer.forward, "wq.forward", "attention.forward"),
            (std::vector<std::string>{"wq.forward", "rope.q.forward", "wk.forward", "rope.k.forward", "wv.forward",
                                      "attention.forward"}));
  EXPECT_EQ(
      Between(layer.backward, "attention.backward", "wq.sum_input_gradient"),
      (std::vector<std::string>{"attention.backward", "wv.weight_gradient", "wv.input_gradient", "rope.k.backward",
                                "wk.weight_gradient", "wk.input_gradient", "wk.sum_input_gradient", "rope.q.backward",
                                "wq.weight_gradient", "wq.input_gradient", "wq.sum_input_gradient"}));
}

TEST(NetworkRotation, OfAPackedProjectionFollowsItForBoth) {
  Partition p = WorkedPartition(1, false);
  p.packed_qkv = true;
  p.fused_rope = false;
  const Block layer = Build(WorkedNetwork(), p).at(1).block;
  EXPECT_EQ(Between(layer.forward, "qkv.forward", "attention.forward"),
            (std::vector<std::string>{"qkv.forward", "rope.q.forward", "rope.k.forward", "attention.forward"}));
  EXPECT_EQ(
      Between(layer.backward, "attention.backward", "qkv.weight_gradient"),
      (std::vector<std::string>{"attention.backward", "rope.k.backward", "rope.q.backward", "qkv.weight_gradient"}));
}

}  // namespace
}  // namespace tidemark::network_rotation_test
