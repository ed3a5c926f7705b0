// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace tidemark {

/// Ends the process with exit code 70 ("a fault of ours") after naming the broken promise.
/// For our own bugs only; wrong input is an Error (base/result.h).
[[noreturn]] void Fail(std::string_view promise, const char* file, int line);

}  // namespace tidemark

/// States something that only a bug of ours can break.
#define TIDEMARK_CHECK(condition)                       \
  do {                                                  \
    if (!(condition)) {                                 \
      ::tidemark::Fail(#condition, __FILE__, __LINE__); \
    }                                                   \
  } while (false)
