// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace tidemark {
namespace {

constexpr std::size_t kMostReasons = 1000;

}  // namespace

void SweepSummary::Add(const PricedRow& row) {
  ++evaluated_;
  feasible_ += row.fits ? 1 : 0;
  same_tokens_ = same_tokens_ && (!first_ || row.tokens == first_->tokens);
  front_.Add(row);
  if (!first_ || ComesBefore(row, *first_)) {
    first_ = row;
  }
  const auto lower = [](const PricedRow& a, const PricedRow& b) {
    return a.allocated != b.allocated ? a.allocated < b.allocated : ComesBefore(a, b);
  };
  if (!lowest_ || lower(row, *lowest_)) {
    lowest_ = row;
  }
  if (best_.size() < top_) {
    best_.push_back(row);
    std::ranges::push_heap(best_, ComesBefore);
  } else if (top_ > 0 && ComesBefore(row, best_.front())) {
    std::ranges::pop_heap(best_, ComesBefore);
    best_.back() = row;
    std::ranges::push_heap(best_, ComesBefore);
  }
}

void SweepSummary::AddRefused(const PricedCombinations& priced) {
  pruned_ += priced.pruned;
  feasible_ += priced.pruned_fitting;
  refused_ += std::ssize(priced.refused);
  for (const PricedCombinations::Refused& refused : priced.refused) {
    const std::string& reason = priced.reasons[refused.reason];
    ++reasons_[reasons_.size() < kMostReasons || reasons_.contains(reason) ? reason : "other reasons"];
  }
}

void SweepSummary::Add(const PricedCombinations& priced) {
  for (const PricedRow& row : priced.rows) {
    Add(row);
  }
  AddRefused(priced);
}

std::vector<PricedRow> SweepSummary::Top() const {
  std::vector<PricedRow> rows = best_;
  std::ranges::sort(rows, ComesBefore);
  return rows;
}

}  // namespace tidemark
