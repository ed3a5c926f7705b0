// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

namespace tidemark {

/// Buffers that the real system, too, keeps after their last use in a step (FindIdle), and what holds them there.
struct IdleClaim {
  /// Whole names as in the program; one `*` stands for any characters. The stage that a name begins with, and what it
  /// ends with because it is recomputed, do not count.
  std::vector<std::string_view> buffers;
  std::string_view why;

  bool Names(std::string_view buffer) const;
};

/// What autograd, the optimizer and pipelines keep, whichever strategy it is.
std::vector<IdleClaim> CommonIdleClaims();

}  // namespace tidemark
