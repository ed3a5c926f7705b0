// SPDX-License-Identifier: Apache-2.0
#include "models/configs/window_pattern.h"

#include <algorithm>

namespace tidemark {

std::optional<std::int64_t> FullAttentionEvery(const std::vector<bool>& has_window) {
  const auto first = std::find(has_window.begin(), has_window.end(), false);
  const std::int64_t every = first == has_window.end() ? 0 : first - has_window.begin() + 1;
  for (std::int64_t layer = 0; layer < std::ssize(has_window); ++layer) {
    const bool is_full = every > 0 && (layer + 1) % every == 0;
    if (has_window[static_cast<std::size_t>(layer)] == is_full) {
      return std::nullopt;
    }
  }
  return every;
}

}  // namespace tidemark
