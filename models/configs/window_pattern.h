// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tidemark {

/// Decoder::full_attention_every of layers of which these have a window; 0: all have it, 1: none has. Nothing where the
/// others are not each so many-th.
std::optional<std::int64_t> FullAttentionEvery(const std::vector<bool>& has_window);

}  // namespace tidemark
