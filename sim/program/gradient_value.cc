// SPDX-License-Identifier: Apache-2.0
#include "sim/program/gradient_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/rational_text.h"

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

/// Walks two sorted lists of terms together. Where both hold gradients, `both(term of a, parts of b)`.
template <class OnlyA, class OnlyB, class Both>
void Sweep(const std::vector<GradientValue::Term>& a, const std::vector<GradientValue::Term>& b, OnlyA only_a,
           OnlyB only_b, Both both) {
  using Term = GradientValue::Term;
  std::size_t i = 0, j = 0;
  Term left = a.empty() ? Term{} : a[0];
  Term right = b.empty() ? Term{} : b[0];
  // The part of `term` before microbatch `end` goes to `visit`.
  const auto take = [](Term& term, const std::vector<Term>& from, std::size_t& at, std::int64_t end, auto visit) {
    Term taken = term;
    taken.last = std::min(term.last, end - 1);
    visit(taken);
    if (taken.last < term.last) {
      term.first = end;
    } else if (++at < from.size()) {
      term = from[at];
    }
  };
  while (i < a.size() || j < b.size()) {
    const bool has_left = i < a.size(), has_right = j < b.size();
    if (!has_right || (has_left && left.source < right.source)) {
      take(left, a, i, left.last + 1, only_a);
    } else if (!has_left || right.source < left.source) {
      take(right, b, j, right.last + 1, only_b);
    } else if (left.first < right.first) {
      take(left, a, i, right.first, only_a);
    } else if (right.first < left.first) {
      take(right, b, j, left.first, only_b);
    } else {
      const std::int64_t end = std::min(left.last, right.last) + 1;
      const GradientValue::Parts theirs = right.parts;
      take(left, a, i, end, [&](const Term& term) { both(term, theirs); });
      take(right, b, j, end, [](const Term&) {});
    }
  }
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
  return !of_own_part && of[0][0] == factor && of[0][1] == factor && of[1][0] == factor && of[1][1] == factor;
}

Factors operator+(const Factors& a, const Factors& b) {
  Factors sum;
  sum.of_own_part = a.of_own_part || b.of_own_part;
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t j = 0; j < 2; ++j) {
      sum.of[i][j] = SaturatingSum(a.of[i][j], b.of[i][j]);
    }
  }
  return sum;
}

Factors operator*(const Factors& factors, Rational scale) {
  Factors product;
  product.of_own_part = factors.of_own_part;
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t j = 0; j < 2; ++j) {
      product.of[i][j] = SaturatingProduct(factors.of[i][j], scale);
    }
  }
  return product;
}

std::string Text(const Factors& factors) {
  return fmt::format("{}with factor {} on behalf of this rank and {} of another",
                     factors.of_own_part ? "of this tensor-parallel rank's part only, " : "", Text(factors.of[0][0]),
                     Text(factors.of[1][1]));
}

const GradientValue::Parts* GradientValue::Find(std::int64_t source, std::int64_t microbatch) const {
  const auto found = std::find_if(terms_.begin(), terms_.end(), [&](const Term& term) {
    return term.source == source && term.first <= microbatch && microbatch <= term.last;
  });
  return found == terms_.end() ? nullptr : &found->parts;
}

const Factors* GradientValue::loss() const {
  return !terms_.empty() && terms_.front().source == kLoss ? &terms_.front().parts.own : nullptr;
}

GradientValue GradientValue::Of(std::int64_t source, std::int64_t microbatch, const Factors& factors) {
  GradientValue value;
  value.terms_.push_back({source, microbatch, microbatch, {factors, factors}});
  return value;
}

void GradientValue::Append(const Term& term) {
  if (!terms_.empty()) {
    Term& before = terms_.back();
    if (before.source == term.source && before.last + 1 == term.first && before.parts == term.parts) {
      before.last = term.last;
      return;
    }
  }
  terms_.push_back(term);
}

void GradientValue::Add(const GradientValue& other) {
  if (other.terms_.empty()) {
    return;
  }
  GradientValue sum;
  sum.terms_.reserve(terms_.size() + other.terms_.size());
  const auto only_mine = [&](const Term& term) { sum.Append(term); };
  const auto only_theirs = only_mine;
  if (terms_.empty()) {  // a sum begins with its first buffer
    std::ranges::for_each(other.terms_, only_theirs);
    *this = std::move(sum);
    return;
  }
  Sweep(terms_, other.terms_, only_mine, only_theirs, [&](Term term, const Parts& theirs) {
    term.parts = {term.parts.own + theirs.own, term.parts.rest + theirs.rest};
    sum.Append(term);
  });
  *this = std::move(sum);
}

void GradientValue::KeepThoseOf(const GradientValue& other) {
  GradientValue kept;
  const auto drop = [](const Term&) {};
  Sweep(terms_, other.terms_, drop, drop, [&](const Term& term, const Parts&) { kept.Append(term); });
  *this = std::move(kept);
}

void GradientValue::StoreOwnPart(const GradientValue& other) {
  GradientValue stored;
  const auto overwritten = [&](Term term) {
    term.parts.own = {};
    stored.Append(term);
  };
  const auto elsewhere = [](const Term&) {};
  Sweep(terms_, other.terms_, overwritten, elsewhere, [&](Term term, const Parts& theirs) {
    term.parts.own = theirs.own;
    stored.Append(term);
  });
  *this = std::move(stored);
}

void GradientValue::DropRest() {
  for (Term& term : terms_) {
    term.parts.rest = {};
  }
}

void GradientValue::Scale(Rational factor) {
  if (factor == Rational(1)) {
    return;
  }
  for (Term& term : terms_) {
    term.parts = {term.parts.own * factor, term.parts.rest * factor};
  }
}

void GradientValue::OverRows(const Collective& collective, std::int64_t ranks) {
  for (Term& term : terms_) {
    for (Factors* factors : {&term.parts.own, &term.parts.rest}) {
      const bool whole = !factors->of_own_part;
      if (collective.kind == CollectiveKind::reduce_scatter || collective.kind == CollectiveKind::all_gather) {
        factors->of_own_part = collective.kind == CollectiveKind::reduce_scatter;
      } else if (term.source != kLoss && collective.reduction == Reduction::sum) {
        *factors = *factors * Rational(whole ? ranks : 1);
        factors->of_own_part = false;
      }
    }
  }
}

// This rank's part of the result: of its own gradient it had `own` itself, and each of the n - 1 others held `other` of
// it in *their* rest of the buffer. Of another rank's gradient: it had `other` itself, that rank held its own in its
// rest, and the n - 2 remaining ranks held `other` in theirs.
void GradientValue::Reduce(Axis axis, std::int64_t ranks, Rational scale, bool in_place) {
  for (Term& term : terms_) {
    Parts& parts = term.parts;
    Parts before = parts;
    for (std::size_t fixed = 0; fixed < 2; ++fixed) {
      const Pair own = Along(before.own, axis, fixed);
      const Pair rest = Along(before.rest, axis, fixed);
      const Pair result = Along(parts.own, axis, fixed);
      result.own = SaturatingProduct(SaturatingSum(own.own, SaturatingProduct(rest.other, Rational(ranks - 1))), scale);
      const Rational theirs = SaturatingSum(rest.own, SaturatingProduct(rest.other, Rational(ranks - 2)));
      result.other = SaturatingProduct(SaturatingSum(own.other, theirs), scale);
    }
    if (!in_place) {
      parts.rest = parts.own;
    }
  }
}

std::string GradientValue::Term::Microbatches() const {
  return first == last ? fmt::format("microbatch {}", first) : fmt::format("microbatches {} to {}", first, last);
}

}  // namespace tidemark
