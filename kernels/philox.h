// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tidemark::kernels {

// The parts of Philox (kernels/dropout.h), for kernels that make many words at once.

constexpr std::uint32_t Low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
constexpr std::uint32_t High(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32U); }

/// One of ten rounds: multiplies two of the words by constants of the paper, mixes the upper halves with the other two
/// and the key. `a` to `d` are the four words.
constexpr void PhiloxRound(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c, std::uint32_t& d,
                           std::uint32_t low_key, std::uint32_t high_key) {
  const std::uint64_t first = std::uint64_t{0xD2511F53} * a, second = std::uint64_t{0xCD9E8D57} * c;
  const std::uint32_t next_a = High(second) ^ b ^ low_key, next_c = High(first) ^ d ^ high_key;
  a = next_a;
  b = Low(second);
  c = next_c;
  d = Low(first);
}

/// Between rounds the key advances by the golden ratio and by sqrt(3) - 1.
inline constexpr std::uint32_t kLowKeyStep = 0x9E3779B9, kHighKeyStep = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 10;

}  // namespace tidemark::kernels
