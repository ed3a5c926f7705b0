// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/rational.h"
#include "sim/program/program.h"

namespace tidemark {

/// With which factor a buffer contains one gradient: as this rank computed it, and as each other rank did. First index:
/// 0 this rank's place in the group "dp", 1 another; second index the same for "replicas". A factor that a wrong
/// program lets grow beyond 64 bits is Rational::TooLarge(), and so never a right one.
struct Factors {
  std::array<std::array<Rational, 2>, 2> of{{{Rational(0), Rational(0)}, {Rational(0), Rational(0)}}};
  /// Along the group "tp": only of the rows or heads that this rank has. The other ranks hold the rest, with the same
  /// factors.
  bool of_own_part = false;

  /// What this rank alone contributed. Along an axis of one rank there is no other: both factors are kept equal.
  static Factors Own(Rational factor, bool has_shards, bool has_replicas);
  /// The same factor for all ranks, and of all rows.
  bool AreAll(Rational factor) const;
  friend bool operator==(const Factors&, const Factors&) = default;
};

Factors operator+(const Factors& a, const Factors& b);
Factors operator*(const Factors& factors, Rational scale);

/// "with factor 1 on behalf of this rank and 1/2 of another".
std::string Text(const Factors& factors);

/// The gradients that a buffer is a sum of, by source and microbatch. A source is the backward kernel that made it, by
/// number; kLoss is the loss itself. Microbatches in a row that are held alike are one term, so that a value is as long
/// as its sources, whatever the number of microbatches; every operation is linear in that length.
class GradientValue {
 public:
  static constexpr std::int64_t kLoss = -1;
  /// A buffer that was reduced in place holds the group's result in this rank's part only.
  struct Parts {
    Factors own, rest;
    friend bool operator==(const Parts&, const Parts&) = default;
  };
  /// One source's gradient of the microbatches `first` to `last`.
  struct Term {
    std::int64_t source = 0, first = 0, last = 0;
    Parts parts;

    /// "microbatch 3", "microbatches 3 to 5".
    std::string Microbatches() const;
  };
  /// An axis of the data-parallel layout: "dp" or "replicas".
  enum class Axis : std::uint8_t { shards, replicas };

  bool empty() const { return terms_.empty(); }
  /// By source, then microbatch.
  const std::vector<Term>& terms() const { return terms_; }
  /// With what factors it holds one gradient; nullptr: it does not.
  const Parts* Find(std::int64_t source, std::int64_t microbatch) const;
  /// The factor of the loss of the microbatch under way; nullptr where this is not a value of the backward pass.
  const Factors* loss() const;

  static GradientValue Of(std::int64_t source, std::int64_t microbatch, const Factors& factors);
  void Add(const GradientValue& other);
  void Scale(Rational factor);
  /// Sums over `ranks` (at least 2) ranks, each contribution times `scale`. `in_place` leaves the rest as it is.
  void Reduce(Axis axis, std::int64_t ranks, Rational scale, bool in_place);
  /// What a collective over `ranks` (at least 2) tensor-parallel ranks makes of it. The loss's gradient is scattered to
  /// each rank's rows and gathered. Of a weight's gradient the sum of all rows' parts is the whole one, and that of
  /// wholes `ranks` times too much.
  void OverRows(const Collective& collective, std::int64_t ranks);
  /// Forgets what lies outside this rank's part.
  void DropRest();
  /// Overwrites this rank's part with that of `other`, of those gradients that belong here.
  void StoreOwnPart(const GradientValue& other);
  /// Forgets the gradients that `other` does not hold.
  void KeepThoseOf(const GradientValue& other);
  /// Forgets those of sources for which `keeps` does not hold.
  template <class Keeps>
  void KeepSources(const Keeps& keeps) {
    std::erase_if(terms_, [&](const Term& term) { return !keeps(term.source); });
  }

 private:
  void Append(const Term& term);

  std::vector<Term> terms_;
};

}  // namespace tidemark
