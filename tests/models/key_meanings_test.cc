// SPDX-License-Identifier: Apache-2.0
#include "models/job/key_meanings.h"

#include <gtest/gtest.h>

#include <string>

#include "models/job/fields.h"

namespace tidemark::key_meanings_test {
namespace {

TEST(KeyMeanings, EveryKeyOfAJobHasOneButThoseOfAMachine) {
  for (const std::string& key : JobKeys()) {
    EXPECT_EQ(MeaningOf(key).empty(), key.starts_with("machine.")) << key;
  }
}

TEST(KeyMeanings, AKeyOfATowerMeansWhatItMeansOfADecoder) {
  EXPECT_EQ(MeaningOf("network.dual_encoder.second.layers"), "how many layers the model has");
  EXPECT_EQ(MeaningOf("network.dual_encoder.second.nothing"), "");
  EXPECT_EQ(MeaningOf("nothing"), "");
}

TEST(KeyMeanings, IsAPhraseThatFitsIntoASentence) {
  for (const std::string& key : JobKeys()) {
    const std::string_view meaning = MeaningOf(key);
    EXPECT_LE(meaning.size(), 110U) << key;
    EXPECT_TRUE(meaning.empty() || (meaning.back() != '.' && meaning.find('(') == std::string_view::npos)) << key;
  }
}

}  // namespace
}  // namespace tidemark::key_meanings_test
