// SPDX-License-Identifier: Apache-2.0
#include "sim/program/gradient_value.h"

namespace tidemark {
namespace {

/// Both factors along one axis, of (own, other): this rank's place, and another's.
struct Pair {
  Rational& own;
  Rational& other;
};

Pair Along(Factors& factors, GradientValue::Axis axis, std::size_t fixed) {
  const bool shards = axis == GradientValue::Axis::shards;
  return shards ? Pair{factors.of[0][fixed], factors.of[1][fixed]} : Pair{factors.of[fixed][0], factors.of[fixed][1]};
}

}  // namespace

Factors Factors::Own(Rational factor, bool has_shards, bool has_replicas) {
  Factors factors;
  for (std::size_t i = 0; i < (has_shards ? 1 : 2); ++i) {
    for (std::size_t j = 0; j < (has_replicas ? 1 : 2); ++j) {
      factors.of[i][j] = factor;
    }
  }
  return factors;
}

bool Factors::AreAll(Rational factor) const {
  return of[0][0] == factor && of[0][1] == factor && of[1][0] == factor && of[1][1] == factor;
}

Factors operator+(const Factors& a, const Factors& b) {
  Factors sum;
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t j = 0; j < 2; ++j) {
      sum.of[i][j] = a.of[i][j] + b.of[i][j];
    }
  }
  return sum;
}

Factors operator*(const Factors& factors, Rational scale) {
  Factors product;
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t j = 0; j < 2; ++j) {
      product.of[i][j] = factors.of[i][j] * scale;
    }
  }
  return product;
}

const Factors* GradientValue::loss() const {
  return !terms_.empty() && terms_.begin()->first.source == kLoss ? &terms_.begin()->second.own : nullptr;
}

GradientValue GradientValue::Of(Key key, const Factors& factors) {
  GradientValue value;
  value.terms_[key] = {factors, factors};
  return value;
}

void GradientValue::Add(const GradientValue& other) {
  for (const auto& [key, parts] : other.terms_) {
    Parts& sum = terms_[key];
    sum = {sum.own + parts.own, sum.rest + parts.rest};
  }
}

void GradientValue::Scale(Rational factor) {
  for (auto& [key, parts] : terms_) {
    parts = {parts.own * factor, parts.rest * factor};
  }
}

// This rank's part of the result: of its own gradient it had `own` itself, and each of the n - 1 others held `other` of
// it in *their* rest of the buffer. Of another rank's gradient: it had `other` itself, that rank held its own in its
// rest, and the n - 2 remaining ranks held `other` in theirs.
void GradientValue::Reduce(Axis axis, std::int64_t ranks, Rational scale, bool in_place) {
  for (auto& [key, parts] : terms_) {
    Parts before = parts;
    for (std::size_t fixed = 0; fixed < 2; ++fixed) {
      const Pair own = Along(before.own, axis, fixed);
      const Pair rest = Along(before.rest, axis, fixed);
      const Pair result = Along(parts.own, axis, fixed);
      result.own = (own.own + rest.other * Rational(ranks - 1)) * scale;
      result.other = (own.other + rest.own + rest.other * Rational(ranks - 2)) * scale;
    }
    if (!in_place) {
      parts.rest = parts.own;
    }
  }
}

}  // namespace tidemark
