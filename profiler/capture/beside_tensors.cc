// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/beside_tensors.h"

namespace tidemark {
namespace {

constexpr std::uint64_t kSystemPage = 4096;  // a stretch of a process's ends with less than a page of nothing

}  // namespace

BesideTensors CountBesideTensors(const TensorMemory& memory, const std::function<void(const VisitStretch&)>& for_each,
                                 const std::function<Bytes(std::uint64_t begin, std::uint64_t end)>& bytes_in) {
  BesideTensors beside;
  for_each([&](std::uint64_t begin, std::uint64_t end) {
    std::uint64_t at = begin;
    const auto empty = [&](std::uint64_t until) {
      const bool tail = until == end && end - at < kSystemPage;
      (tail ? beside.rounding : beside.cached) += bytes_in(at, until);
    };
    for (auto piece = memory.live().lower_bound(begin); piece != memory.live().end() && piece->first < end; ++piece) {
      const auto& [address, room] = *piece;
      empty(address);
      at = address + static_cast<std::uint64_t>(room.charged.count());
      beside.rounding += bytes_in(address + static_cast<std::uint64_t>(room.bytes.count()), at);
    }
    empty(end);
  });
  return beside;
}

}  // namespace tidemark
