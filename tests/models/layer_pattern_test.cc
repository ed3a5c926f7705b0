// SPDX-License-Identifier: Apache-2.0
#include "models/configs/layer_pattern.h"

#include <gtest/gtest.h>

#include <string>

namespace tidemark::layer_pattern_test {
namespace {

/// "0011"; "-": it is none.
std::string Read(const std::string& text, std::int64_t layers = 4) {
  const auto pattern = ReadLayerPattern(text, layers);
  std::string found = pattern ? "" : "-";
  for (const bool has : pattern.value_or(std::vector<bool>())) {
    found += has ? '1' : '0';
  }
  return found;
}

// What Python 3.11 makes of the same texts.
TEST(LayerPattern, IsWhatPythonMakesOfIt) {
  EXPECT_EQ(Read("([0]*1+[1]*3)"), "0111");
  EXPECT_EQ(Read("[0] * 2 + [1] * 2"), "0011");
  EXPECT_EQ(Read("[0,1]*3"), "010101");
  EXPECT_EQ(Read("([0, 1]*2+[1])*2"), "0101101011");
  EXPECT_EQ(Read("[1]*2*2"), "1111");
  EXPECT_EQ(Read("[0]+[1]*2"), "011") << "a product binds tighter";
  EXPECT_EQ(Read("[1]*0+[]"), "");
}

// Megatron-LM, gpt_layer_specs.py: a layer has experts where n divides its number.
TEST(LayerPattern, OfANumberIsEveryNthFromTheFirstOn) {
  EXPECT_EQ(Read("1"), "1111");
  EXPECT_EQ(Read("2", 5), "10101");
  EXPECT_EQ(Read("9"), "1000");
}

TEST(LayerPattern, IsNothingElse) {
  for (const char* text : {"", "0", "-1", "1.5", "[2]", "[0]*-1", "[0]*[1]", "([0]", "[0]]", "3*[0]", "[0,]*", "layers",
                           "[1]*99999999999999999999", "[1]*16384+[", "[1]*16385"}) {
    EXPECT_EQ(Read(text), "-") << text;
  }
  const auto within = [](int parentheses) {
    const auto count = static_cast<std::size_t>(parentheses);
    return Read(std::string(count, '(') + "[1]" + std::string(count, ')'));
  };
  EXPECT_EQ(within(kDeepestPattern), "1");
  EXPECT_EQ(within(kDeepestPattern + 1), "-");
  EXPECT_EQ(within(1 << 16), "-");
  EXPECT_EQ(Read("[1]*2+" + std::string(1 << 16, '(')), "-");
}

}  // namespace
}  // namespace tidemark::layer_pattern_test
