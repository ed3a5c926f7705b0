// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "models/configs/window_pattern.h"
#include "tests/models/megatron_config.h"

namespace tidemark::config_megatron_windows_test {
namespace {

using ::testing::HasSubstr;

std::string WindowOf(const std::string& options) { return KeyOf(options, "network.sliding_window"); }
std::string EveryOf(const std::string& options) { return KeyOf(options, "network.full_attention_every"); }

// megatron/training/arguments.py, tuple_type; the tokens to the left of a token, and itself.
TEST(ConfigMegatronWindows, AreOfTheTokensBeforeOneAndItself) {
  EXPECT_EQ(WindowOf(""), "(nothing)");
  EXPECT_EQ(WindowOf("--window-size 511,0"), "512");
  EXPECT_EQ(WindowOf("--window-size (511,0)"), "512");
  EXPECT_EQ(WindowOf("--window-size 0,0"), "1");
  EXPECT_EQ(WindowOf("--window-size 511,-1"), "512");
  EXPECT_EQ(WindowOf("--window-size -1,0"), "(nothing)");
  EXPECT_EQ(EveryOf("--window-size 511,0"), "0");
}

// megatron/core/transformer/utils.py, is_layer_window_attention: layers from 1 on.
TEST(ConfigMegatronWindows, AreOfTheLayersThatAreNotSkipped) {
  const std::string size = "--window-size 127,0 --window-attn-skip-freq ";
  EXPECT_EQ(EveryOf(size + "4"), "4");
  EXPECT_EQ(WindowOf(size + "4"), "128");
  EXPECT_EQ(WindowOf(size + "1"), "(nothing)") << "all are skipped";
  EXPECT_EQ(EveryOf(size + "([1]*2+[0]*1)*4"), "3");
  EXPECT_EQ(EveryOf(size + "([1]*2 + [0]*1)*4"), "3");
  EXPECT_EQ(EveryOf(size + "[1]*12"), "0");
  EXPECT_EQ(WindowOf(size + "[0]*12"), "(nothing)");
  EXPECT_EQ(EveryOf("--window-attn-skip-freq 4"), "(nothing)") << "of no window";
}

TEST(ConfigMegatronWindows, OthersAreRefusedByName) {
  for (const auto& [options, reason] : std::vector<std::pair<std::string, std::string>>{
           {"--window-size 511", "window-size: expected the tokens before one"},
           {"--window-size 511,511", "window-size: expected the tokens before one"},
           {"--window-size x,0", "found 'x,0'"},
           {"--window-size -2,0", "found '-2,0'"},
           {"--window-size 16777216,0", "found '16777216,0'"},
           {"--window-size 127,0 --window-attn-skip-freq 0", "window-attn-skip-freq: expected a whole number"},
           {"--window-size 127,0 --window-attn-skip-freq [1]*11", "a list of 12 ones and zeros"},
           {"--window-size 127,0 --window-attn-skip-freq often", "found 'often'"},
           {"--window-size 127,0 --window-attn-skip-freq [0]*4+[1]*8", "not each so many-th"}}) {
    EXPECT_THAT(RefusalOf(kFormat, Least(options), kRanks), HasSubstr(reason)) << options;
  }
}

TEST(WindowPattern, IsOfEachSoManyThLayer) {
  EXPECT_EQ(FullAttentionEvery({}), 0);
  EXPECT_EQ(FullAttentionEvery({true, true}), 0);
  EXPECT_EQ(FullAttentionEvery({false, false}), 1);
  EXPECT_EQ(FullAttentionEvery({true, true, false, true}), 3);
  EXPECT_EQ(FullAttentionEvery({true, false, true, true}), std::nullopt);
  EXPECT_EQ(FullAttentionEvery({true, false, false, false}), std::nullopt);
}

}  // namespace
}  // namespace tidemark::config_megatron_windows_test
