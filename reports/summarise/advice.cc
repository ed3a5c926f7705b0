// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/advice.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace tidemark {
namespace {

double Ratio(std::int64_t won, std::int64_t given) { return static_cast<double>(won) / static_cast<double>(given); }

/// What costs nothing first, by what it wins; then by what it wins for what it costs. Of equals the one that wins more,
/// then the shorter change.
bool Better(std::int64_t won_a, std::int64_t given_a, const std::string& a, std::int64_t won_b, std::int64_t given_b,
            const std::string& b) {
  const bool free_a = given_a <= 0, free_b = given_b <= 0;
  if (free_a != free_b) {
    return free_a;
  }
  const double ratio_a = free_a ? 0 : Ratio(won_a, given_a), ratio_b = free_b ? 0 : Ratio(won_b, given_b);
  return std::tuple(-ratio_a, -won_a, a.size(), a) < std::tuple(-ratio_b, -won_b, b.size(), b);
}

void KeepFirst(std::vector<AdvisedOption>& options, std::size_t top, std::int64_t& left_out) {
  std::array<std::size_t, 2> kept{};
  const auto rest = std::remove_if(options.begin(), options.end(),
                                   [&](const AdvisedOption& option) { return ++kept.at(option.alters ? 1 : 0) > top; });
  left_out += options.end() - rest;
  options.erase(rest, options.end());
}

}  // namespace

std::optional<double> AdvisedOption::SavedPerMillisecond() const {
  constexpr double kNanosPerMillisecond = 1e6;
  if (lost <= Nanos(0)) {
    return std::nullopt;
  }
  return Ratio(saved.count(), lost.count()) * kNanosPerMillisecond;
}

void Sort(AdvisedOption option, Advice& advice) {
  option.saved = advice.now.allocated - option.cost.allocated;
  option.lost = option.cost.step - advice.now.step;
  const bool makes_fit = option.saved == Bytes(0) && option.cost.fits && !advice.now.fits && option.cost.simulated;
  if (option.saved > Bytes(0) || makes_fit) {
    ++advice.saves;
    advice.saves_and_fits += option.cost.fits && option.begins ? 1 : 0;
    advice.saving.push_back(std::move(option));
  } else if (option.lost < Nanos(0)) {
    advice.faster.push_back(std::move(option));
  } else if (option.saved == Bytes(0) && option.lost == Nanos(0)) {
    ++advice.no_effect;
  } else {
    ++advice.worse;
  }
}

void Finish(Advice& advice, std::size_t top) {
  std::sort(advice.saving.begin(), advice.saving.end(), [](const AdvisedOption& a, const AdvisedOption& b) {
    return Better(a.saved.count(), a.lost.count(), a.change, b.saved.count(), b.lost.count(), b.change);
  });
  std::sort(advice.faster.begin(), advice.faster.end(), [](const AdvisedOption& a, const AdvisedOption& b) {
    if (a.cost.fits != b.cost.fits) {
      return a.cost.fits;
    }
    return Better(-a.lost.count(), -a.saved.count(), a.change, -b.lost.count(), -b.saved.count(), b.change);
  });
  KeepFirst(advice.saving, top, advice.left_out);
  KeepFirst(advice.faster, top, advice.left_out);
}

}  // namespace tidemark
