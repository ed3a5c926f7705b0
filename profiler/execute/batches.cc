// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/random_bits.h"

namespace tidemark {

Batches Batches::Random(std::int64_t vocabulary, std::int64_t tokens, std::uint64_t seed) {
  Batches batches;
  batches.vocabulary_ = vocabulary;
  batches.tokens_ = tokens;
  batches.seed_ = seed;
  return batches;
}

Result<Batches> Batches::OfText(std::string text, std::int64_t vocabulary, std::int64_t tokens, std::uint64_t seed) {
  constexpr std::int64_t kBytes = 256;
  if (vocabulary < kBytes) {
    return BadInput(
        fmt::format("expected a vocabulary of {} at least for a text read byte by byte, found {}", kBytes, vocabulary),
        "set network.vocabulary to 256");
  }
  if (std::ssize(text) < tokens + 1) {
    return BadInput(fmt::format("expected {} bytes of text at least, one more than sequence_length, found {}",
                                tokens + 1, text.size()),
                    "give a longer text, or set a smaller sequence_length");
  }
  Batches batches = Random(vocabulary, tokens, seed);
  batches.text_ = std::move(text);
  return batches;
}

Batches Batches::Uneven(std::int64_t mean) const {
  TIDEMARK_CHECK(mean >= 1 && mean <= tokens_);
  Batches batches = *this;
  batches.mean_ = mean;
  return batches;
}

std::int64_t Batches::CountedOf(std::int64_t sample) const {
  if (mean_ == 0) {
    return tokens_;
  }
  const std::int64_t reach = std::min(tokens_ - mean_, mean_ - 1);  // as far to both sides
  const std::uint64_t bits = kernels::RandomBits(~seed_ ^ kernels::RandomBits(static_cast<std::uint64_t>(sample)));
  return mean_ - reach + static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(2 * reach + 1));
}

void Batches::Labels(std::int64_t sample, std::span<std::int64_t> labels) const {
  Fill(sample, 1, labels);
  std::fill(labels.begin() + CountedOf(sample), labels.end(), kIgnored);
}

void Batches::Fill(std::int64_t sample, std::int64_t shift, std::span<std::int64_t> to) const {
  const std::uint64_t key = kernels::RandomBits(seed_ ^ kernels::RandomBits(static_cast<std::uint64_t>(sample)));
  if (text_.empty()) {
    for (std::int64_t i = 0; i < std::ssize(to); ++i) {
      const std::uint64_t bits = kernels::RandomBits(key + static_cast<std::uint64_t>(i + shift));
      to[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(vocabulary_));
    }
    return;
  }
  const auto places = static_cast<std::uint64_t>(std::ssize(text_) - tokens_);
  const std::size_t start = key % places + static_cast<std::size_t>(shift);
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = static_cast<unsigned char>(text_[start + i]);
  }
}

}  // namespace tidemark
