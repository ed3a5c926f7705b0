// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

#include "tests/base/sanitizer.h"

namespace tidemark {

/// How many random jobs a test tries of `usual`: a tenth under a sanitizer, which looks for something else.
constexpr int Rounds(int usual) { return kSanitized ? (usual + 9) / 10 : usual; }

/// Random numbers for generators, the same on every machine (the standard's distributions are not).
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}

  std::uint32_t Roll(std::size_t sides) { return static_cast<std::uint32_t>(engine_() % sides); }
  bool OneIn(std::size_t chances) { return Roll(chances) == 0; }
  std::int64_t Number(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(most - least + 1));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace tidemark
