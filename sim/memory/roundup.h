// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "base/quantity.h"
#include "models/job/allocator_options.h"

namespace tidemark {

/// How many steps PyTorch has between this size and the next power of two; 0 or 1: none. The steps stand in order of
/// `from`.
inline std::int64_t DivisionsOf(std::span<const RoundupDivisions> steps, Bytes size) {
  std::int64_t divisions = 0;
  for (const RoundupDivisions& step : steps) {
    divisions = step.from <= size ? step.divisions : divisions;
  }
  return divisions;
}

/// A size above 4 bytes rounded up to the next of `divisions` equal steps between its powers of two (PyTorch:
/// roundup_power2_next_division). 1200 with 4 steps of 256 from 1024 on is 1280.
inline std::int64_t RoundUpToDivision(std::int64_t size, std::int64_t divisions) {
  const std::uint64_t bits = static_cast<std::uint64_t>(size);
  if (size <= 4 || divisions <= 1 || std::has_single_bit(bits)) {
    return size;
  }
  const std::uint64_t floor = std::bit_floor(bits);
  const std::uint64_t step = floor / std::bit_floor(static_cast<std::uint64_t>(divisions));
  return step == 0 ? static_cast<std::int64_t>(2 * floor) : RoundUp(size, static_cast<std::int64_t>(step));
}

/// The size of a block for a request of `bytes`, more than none (PyTorch: round_size). Divisions apply above 512 bytes
/// for each of them; else it is the next multiple of 512.
inline Bytes RoundedRequest(std::span<const RoundupDivisions> steps, Bytes bytes) {
  constexpr std::int64_t kMinBlock = 512;
  const std::int64_t divisions = steps.empty() ? 0 : DivisionsOf(steps, bytes);
  const bool divided = divisions > 1 && bytes.count() > kMinBlock * divisions;
  return Bytes(divided ? RoundUpToDivision(bytes.count(), divisions) : RoundUp(bytes.count(), kMinBlock));
}

}  // namespace tidemark
