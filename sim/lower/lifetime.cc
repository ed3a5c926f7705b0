// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/lifetime.h"

#include <algorithm>

namespace tidemark {

std::vector<Lifetime> LifetimesOf(const Block& block) {
  std::vector<Lifetime> lifetimes(block.tensors.size());
  for (std::size_t i = 0; i < block.forward.size() + block.backward.size(); ++i) {
    ForEachTouch(ActionAt(block, i), [&](TensorId tensor, bool write) {
      Lifetime& lifetime = lifetimes[tensor.index];
      if (write) {
        lifetime.birth = std::min(lifetime.birth, i);
      }
      lifetime.death = i;
    });
  }
  return lifetimes;
}

Bytes SavedBytes(const Block& block) {
  const std::vector<Lifetime> lifetimes = LifetimesOf(block);
  Bytes saved;
  for (std::uint32_t i = 0; i < block.tensors.size(); ++i) {
    const Tensor& tensor = block.tensors[i];
    const bool before = TensorId{i} == block.input || lifetimes[i].birth < block.forward.size();
    const bool after = lifetimes[i].death != Lifetime::kNever && lifetimes[i].death >= block.forward.size();
    if (before && after && tensor.pool.empty() && TensorId{i} != block.output) {
      saved += SizeOf(tensor.dtype) * tensor.elements;
    }
  }
  return saved;
}

}  // namespace tidemark
