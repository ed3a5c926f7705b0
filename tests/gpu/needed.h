// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <utility>

#include "base/result.h"

namespace tidemark {

/// What a test cannot go on without: an exception, which GoogleTest reports as the failure of this test, where there is
/// none, as without a GPU.
template <typename T>
T Needed(Result<T> result) {
  if (!result.ok()) {
    throw std::runtime_error(result.error().Text());
  }
  return std::move(*result);
}

}  // namespace tidemark
