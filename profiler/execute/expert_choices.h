// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "models/job/job.h"
#include "profiler/comm/communicator.h"

namespace tidemark {

/// Which experts the tokens of a training's first step go to, in each layer of the model: what one run has chosen, for
/// another one to follow, however the samples are cut into microbatches and ranks.
///
/// The choice is a step function of the router's logits: two logits that are closer than a rounding change places, and
/// the token's gradient goes to another expert. Gradients in an arithmetic of few bits are therefore compared with
/// those of exact arithmetic for the same choice.
class ExpertChoices {
 public:
  /// Of a network without experts.
  ExpertChoices() = default;
  explicit ExpertChoices(const Job& job);

  bool empty() const { return numbers_.empty(); }
  /// Tokens, one for each layer that they come through.
  std::int64_t tokens() const { return per_token_ > 0 ? std::ssize(numbers_) / per_token_ : 0; }
  /// Tokens that go to other experts than in `other`, of the same job's samples.
  std::int64_t OthersThan(const ExpertChoices& other) const;

  /// The experts of the token at this place of a sample. Layers are counted as the model's, of which the first ones may
  /// have none.
  void Put(std::int64_t layer, std::int64_t sample, std::int64_t place, std::span<const std::int64_t> experts);
  void Get(std::int64_t layer, std::int64_t sample, std::int64_t place, std::span<std::int64_t> experts) const;

  /// What all ranks of a world have put, each its own tokens and layers; every rank calls it.
  Status Join(World& world);

 private:
  std::size_t At(std::int64_t layer, std::int64_t sample, std::int64_t place) const;

  std::int64_t first_layer_ = 0;  ///< that has experts
  std::int64_t layers_ = 0, samples_ = 0, sequence_ = 0, per_token_ = 0, experts_ = 0;
  std::vector<double>
      numbers_;  ///< [layers, samples, sequence, per token], from 1; 0: not known. Sums of ranks' are both
};

}  // namespace tidemark
