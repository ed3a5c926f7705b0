// SPDX-License-Identifier: Apache-2.0
#include "sim/program/window_factor.h"

#include <cmath>
#include <limits>

namespace tidemark {
namespace {

double DistanceFromOne(Rational factor) {
  return factor.too_large()
             ? std::numeric_limits<double>::infinity()
             : std::abs(static_cast<double>(factor.numerator()) / static_cast<double>(factor.denominator()) - 1);
}

Rational Farther(Rational a, Rational b) { return DistanceFromOne(b) > DistanceFromOne(a) ? b : a; }

}  // namespace

void WindowFactor::Join(const WindowFactor& other) {
  factor = Farther(factor, other.factor);
  uniform = uniform && other.uniform;
}

void JoinWindows(std::vector<WindowFactor>& windows, const std::vector<WindowFactor>& of_role) {
  for (std::size_t i = 0; i < of_role.size(); ++i) {
    if (i < windows.size()) {
      windows[i].Join(of_role[i]);
    } else {
      windows.push_back(of_role[i]);
    }
  }
}

Rational WindowMeter::TotalOf(const Factors& factors) const {
  Rational total(0);
  for (const std::size_t shard : {0U, 1U}) {
    for (const std::size_t replica : {0U, 1U}) {
      const std::int64_t ranks = (shard == 0 ? 1 : shards_ - 1) * (replica == 0 ? 1 : replicas_ - 1);
      total = SaturatingSum(total, SaturatingProduct(factors.of.at(shard).at(replica), Rational(ranks)));
    }
  }
  return total;
}

void WindowMeter::Read(const std::vector<GradientValue::Term>& terms, bool whole) {
  Read(terms, &GradientValue::Parts::own);
  if (whole) {
    Read(terms, &GradientValue::Parts::rest);
  }
}

void WindowMeter::Read(const std::vector<GradientValue::Term>& terms, Factors GradientValue::Parts::*part) {
  Rational total(0);
  bool alike = true;
  for (const GradientValue::Term& term : terms) {
    const Factors& factors = term.parts.*part;
    total = SaturatingSum(total, SaturatingProduct(TotalOf(factors), Rational(term.last - term.first + 1)));
    // Every rank and every microbatch has its gradient in it as much as the first one.
    alike = alike && factors.AreAll((terms.front().parts.*part).of[0][0]);
  }
  window_.factor = Farther(window_.factor, total);
  window_.uniform = window_.uniform && alike;
}

void WindowMeter::End(const std::set<std::int64_t>& microbatches, bool steps) {
  window_.microbatches.assign(microbatches.begin(), microbatches.end());
  window_.steps = steps;
  windows_.push_back(window_);
  window_ = {};
}

}  // namespace tidemark
