// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "traces/formats/pickle.h"
#include "traces/formats/torch_snapshot.h"

namespace tidemark {

/// Keys of the dictionaries inside a snapshot, in the order of their names.
enum class TorchKey : std::uint8_t {
  action,
  addr,
  address,
  allocator,
  blocks,
  category,
  device,
  dtype,
  filename,
  frames,
  history,
  line,
  name,
  origin,
  real_size,
  requested_size,
  role,
  size,
  stage,
  state,
  stream,
  time_us,
  total_size,
  user_metadata,
};
inline constexpr std::array<std::string_view, 24> kTorchKeys = {
    "action",   "addr",   "address", "allocator", "blocks", "category", "device",     "dtype",
    "filename", "frames", "history", "line",      "name",   "origin",   "real_size",  "requested_size",
    "role",     "size",   "stage",   "state",     "stream", "time_us",  "total_size", "user_metadata"};

/// The known fields of a dictionary.
class TorchFields {
 public:
  TorchFields(const PickleHeap& heap, PickleValue dict) {
    const std::span<const PickleValue> items = heap.Items(dict);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      const std::string_view key = items[i].text();
      const auto found = std::lower_bound(kTorchKeys.begin(), kTorchKeys.end(), key);
      if (found != kTorchKeys.end() && *found == key) {
        fields_.at(static_cast<std::size_t>(found - kTorchKeys.begin())) = items[i + 1];
      }
    }
  }

  bool has(TorchKey key) const { return get(key).has_value(); }
  std::string_view text(TorchKey key) const { return has(key) ? get(key)->text() : std::string_view(); }
  PickleValue value(TorchKey key) const { return has(key) ? *get(key) : PickleValue(); }

  /// A whole number; `otherwise` where the key is absent or None. Newer times are real numbers in some tools.
  Result<std::int64_t> Whole(TorchKey key, std::optional<std::int64_t> otherwise, std::string_view of) const {
    const PickleValue found = value(key);
    if (found.kind == PickleValue::Kind::integer) {
      return found.number;
    }
    if (found.kind == PickleValue::Kind::real && std::abs(found.real) < 0x1p62) {
      return static_cast<std::int64_t>(found.real);
    }
    if (found.kind == PickleValue::Kind::none && otherwise) {
      return *otherwise;
    }
    return BadInput(
        fmt::format("a whole number was expected for '{}' of {}", kTorchKeys.at(static_cast<std::size_t>(key)), of));
  }

  /// A number of bytes.
  Result<std::int64_t> Size(TorchKey key, std::optional<std::int64_t> otherwise, std::string_view of) const {
    TIDEMARK_ASSIGN(const std::int64_t size, Whole(key, otherwise, of));
    if (size < 0 || size > kMostTorchBytes) {
      return BadInput(fmt::format("{} has an impossible size of {} bytes", of, size));
    }
    return size;
  }

 private:
  const std::optional<PickleValue>& get(TorchKey key) const { return fields_.at(static_cast<std::size_t>(key)); }
  std::array<std::optional<PickleValue>, kTorchKeys.size()> fields_;
};

}  // namespace tidemark
