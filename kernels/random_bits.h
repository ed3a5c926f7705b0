// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tidemark::kernels {

/// Random bits of a counter: splitmix64's output function (Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators", 2014), a bijection. Whoever asks for the same counter gets the same bits.
constexpr std::uint64_t RandomBits(std::uint64_t counter) {
  counter += 0x9e3779b97f4a7c15U;
  counter = (counter ^ (counter >> 30)) * 0xbf58476d1ce4e5b9U;
  counter = (counter ^ (counter >> 27)) * 0x94d049bb133111ebU;
  return counter ^ (counter >> 31);
}

}  // namespace tidemark::kernels
