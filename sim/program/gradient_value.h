// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <utility>

#include "base/rational.h"
#include "sim/program/program.h"

namespace tidemark {

/// With which factor a buffer contains one gradient: as this rank computed it, and as each other rank did. First index:
/// 0 this rank's place in the group "dp", 1 another; second index the same for "replicas".
struct Factors {
  std::array<std::array<Rational, 2>, 2> of{{{Rational(0), Rational(0)}, {Rational(0), Rational(0)}}};

  /// What this rank alone contributed. Along an axis of one rank there is no other: both factors are kept equal.
  static Factors Own(Rational factor, bool has_shards, bool has_replicas);
  /// The same factor for all ranks.
  bool AreAll(Rational factor) const;
  friend bool operator==(const Factors&, const Factors&) = default;
};

Factors operator+(const Factors& a, const Factors& b);
Factors operator*(const Factors& factors, Rational scale);

/// The gradients that a buffer is a sum of, by (source, microbatch). Source -1 is the loss.
class GradientValue {
 public:
  /// Which backward kernel made it, and for which microbatch.
  struct Key {
    std::int64_t source = 0, microbatch = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  static constexpr std::int64_t kLoss = -1;
  /// A buffer that was reduced in place holds the group's result in this rank's part only.
  struct Parts {
    Factors own, rest;
  };
  /// An axis of the data-parallel layout: "dp" or "replicas".
  enum class Axis : std::uint8_t { shards, replicas };

  bool empty() const { return terms_.empty(); }
  const std::map<Key, Parts>& terms() const { return terms_; }
  /// The factor of the loss of the microbatch under way; nullptr where this is not a value of the backward pass.
  const Factors* loss() const;

  static GradientValue Of(Key key, const Factors& factors);
  void Add(const GradientValue& other);
  void Set(const Key& key, const Parts& parts) { terms_[key] = parts; }
  void Scale(Rational factor);
  /// Sums over `ranks` (at least 2) ranks, each contribution times `scale`. `in_place` leaves the rest as it is.
  void Reduce(Axis axis, std::int64_t ranks, Rational scale, bool in_place);

 private:
  std::map<Key, Parts> terms_;
};

}  // namespace tidemark
