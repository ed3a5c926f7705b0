// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "models/configs/torchtitan_module.h"

namespace tidemark {

/// A layer's experts as a saved config of torchtitan describes them (`moe`; b5bcd76c, torchtitan/models/common/moe.py).
struct SavedExperts {
  std::int64_t count = 0, per_token = 0, ffn = 0, shared_ffn = 0;
  friend bool operator==(const SavedExperts&, const SavedExperts&) = default;
};

/// Of the layer `of`, whose tokens are of `hidden` numbers. Passed over is how scores are made and normalised, which is
/// a few numbers per token and expert; dispatchers other than all-to-all are refused, and biases.
Result<SavedExperts> ReadSavedExperts(const TorchtitanModule& of, std::int64_t hidden);

}  // namespace tidemark
