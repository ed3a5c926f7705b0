// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "models/configs/config_huggingface.h"

namespace tidemark {

/// What the text of a config.json makes of a decoder, and what it is refused with.
inline Decoder ReadHuggingFaceText(std::string_view text) {
  const Result<Network> network = ReadHuggingFaceConfig(text, "config.json");
  EXPECT_TRUE(network.ok()) << network.error().Text();
  return network.ok() ? std::get<Decoder>(network->shape) : Decoder{};
}

inline std::string HuggingFaceErrorOf(std::string_view text) {
  const Result<Network> network = ReadHuggingFaceConfig(text, "dir/config.json");
  EXPECT_FALSE(network.ok());
  return network.ok() ? std::string() : network.error().Text();
}

}  // namespace tidemark
