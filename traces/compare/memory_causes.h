// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "traces/compare/align.h"
#include "traces/compare/compare.h"

namespace tidemark {

/// Everything in which the lives of two traces differ, by kind and family; `at_peak` sums exactly to the difference of
/// the peaks.
///
/// The peaks are at an instant of their own each. What differs is read at one instant on both sides: that of the
/// higher peak, where the other side has at most its own peak. The difference there is the sum over tensors that are
/// alive on one side only or have other bytes; what the lower side has more at its own peak than at this instant is
/// `other_moment`, which is never larger than the causes and of the opposite sign.
std::vector<MemoryCause> FindMemoryCauses(const Alignment& alignment);

/// Lives without a partner, by side, name and place, in order of birth.
std::vector<UnmatchedTensor> FindUnmatched(const Alignment& alignment);

/// Families whose blocks in the allocator differ on the two sides though their bytes agree.
std::vector<std::string> FindRounded(const Alignment& alignment);

std::optional<FirstDifference> FindFirstDifference(const Alignment& alignment);

}  // namespace tidemark
