// SPDX-License-Identifier: Apache-2.0
#include "traces/family.h"

#include <gtest/gtest.h>

namespace tidemark::family_test {
namespace {

TEST(FamilyOf, leavesOutTheIndexOfLayerAndMicrobatch) {
  EXPECT_EQ(FamilyOf("layers.7.mlp.gate"), "layers.*.mlp.gate");
  EXPECT_EQ(FamilyOf("layers.12.mlp.gate"), "layers.*.mlp.gate");
  EXPECT_EQ(FamilyOf("bucket[3]"), "bucket");
  EXPECT_EQ(FamilyOf("flattened bucket, 12288 elements"), "flattened bucket, 12288 elements");  // a size, no index
  EXPECT_EQ(FamilyOf("layer.qkv_in"), "layer.qkv_in");
}

}  // namespace
}  // namespace tidemark::family_test
