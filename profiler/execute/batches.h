// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace tidemark {

/// What the training reads: samples of `tokens` ids, and as labels the ids that follow each. Sample `i` is the same
/// whoever asks for it, so that ranks and one big batch see the same data.
///
/// Sequences may be of different lengths. They are padded then: what lies behind a sample's end is read, but its label
/// is kIgnored, so that it adds nothing to the loss.
class Batches {
 public:
  static constexpr std::int64_t kIgnored = -100;  ///< PyTorch's ignore_index

  /// Random ids below `vocabulary`.
  static Batches Random(std::int64_t vocabulary, std::int64_t tokens, std::uint64_t seed);
  /// Stretches of a text, each byte an id; fails where the vocabulary is too small or the text too short.
  static Result<Batches> OfText(std::string text, std::int64_t vocabulary, std::int64_t tokens, std::uint64_t seed);

  /// With lengths from 1 to `tokens`, drawn for each sample evenly from around their mean.
  Batches Uneven(std::int64_t mean) const;

  /// How many tokens of a sample have a label that counts.
  std::int64_t CountedOf(std::int64_t sample) const;
  void Ids(std::int64_t sample, std::span<std::int64_t> ids) const { Fill(sample, 0, ids); }
  void Labels(std::int64_t sample, std::span<std::int64_t> labels) const;

 private:
  void Fill(std::int64_t sample, std::int64_t shift, std::span<std::int64_t> to) const;

  std::string text_;  ///< empty: random
  std::int64_t vocabulary_ = 0, tokens_ = 0;
  std::int64_t mean_ = 0;  ///< of the lengths; 0: all are `tokens_`
  std::uint64_t seed_ = 0;
};

}  // namespace tidemark
