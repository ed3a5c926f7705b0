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
class Batches {
 public:
  /// Random ids below `vocabulary`.
  static Batches Random(std::int64_t vocabulary, std::int64_t tokens, std::uint64_t seed);
  /// Stretches of a text, each byte an id; fails where the vocabulary is too small or the text too short.
  static Result<Batches> OfText(std::string text, std::int64_t vocabulary, std::int64_t tokens, std::uint64_t seed);

  void Ids(std::int64_t sample, std::span<std::int64_t> ids) const { Fill(sample, 0, ids); }
  void Labels(std::int64_t sample, std::span<std::int64_t> labels) const { Fill(sample, 1, labels); }

 private:
  void Fill(std::int64_t sample, std::int64_t shift, std::span<std::int64_t> to) const;

  std::string text_;  ///< empty: random
  std::int64_t vocabulary_ = 0, tokens_ = 0;
  std::uint64_t seed_ = 0;
};

}  // namespace tidemark
