// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/models/foreign_config.h"

namespace tidemark {

inline constexpr const char* kFormat = "megatron";

/// GPT with all that has no default.
inline std::string Least(const std::string& more = {}) {
  return "--num-layers 12 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --max-position-embeddings 1024 "
         "--micro-batch-size 4 " +
         more;
}
inline const std::vector<std::string> kRanks = {"layout.dp=8"};

/// What that and `more` make of a key.
inline std::string KeyOf(const std::string& more, const std::string& key) {
  return TextOf(MustRead(kFormat, Least(more), kRanks), key);
}

}  // namespace tidemark
