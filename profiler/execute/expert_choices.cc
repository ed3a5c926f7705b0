// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/expert_choices.h"

#include <algorithm>
#include <memory>
#include <variant>

#include "base/check.h"

namespace tidemark {

ExpertChoices::ExpertChoices(const Job& job) {
  const Experts* experts = ExpertsOf(job.network);
  if (experts == nullptr) {
    return;
  }
  first_layer_ = experts->dense_layers;
  layers_ = std::get<Decoder>(job.network.shape).layers - first_layer_;
  samples_ = job.Microbatches() * job.micro_batch_size * job.layout.dp;
  sequence_ = job.sequence_length;
  per_token_ = experts->per_token;
  experts_ = experts->count;
  numbers_.resize(static_cast<std::size_t>(layers_ * samples_ * sequence_ * per_token_));
}

std::size_t ExpertChoices::At(std::int64_t layer, std::int64_t sample, std::int64_t place) const {
  layer -= first_layer_;
  TIDEMARK_CHECK(layer >= 0 && layer < layers_ && sample >= 0 && sample < samples_ && place >= 0 && place < sequence_);
  return static_cast<std::size_t>(((layer * samples_ + sample) * sequence_ + place) * per_token_);
}

void ExpertChoices::Put(std::int64_t layer, std::int64_t sample, std::int64_t place,
                        std::span<const std::int64_t> experts) {
  TIDEMARK_CHECK(std::ssize(experts) == per_token_);
  std::transform(experts.begin(), experts.end(),
                 numbers_.begin() + static_cast<std::ptrdiff_t>(At(layer, sample, place)),
                 [](std::int64_t expert) { return static_cast<double>(expert + 1); });
}

void ExpertChoices::Get(std::int64_t layer, std::int64_t sample, std::int64_t place,
                        std::span<std::int64_t> experts) const {
  TIDEMARK_CHECK(std::ssize(experts) == per_token_);
  const std::size_t at = At(layer, sample, place);
  for (std::size_t i = 0; i < experts.size(); ++i) {
    experts[i] = static_cast<std::int64_t>(numbers_[at + i]) - 1;
  }
}

std::int64_t ExpertChoices::OthersThan(const ExpertChoices& other) const {
  TIDEMARK_CHECK(numbers_.size() == other.numbers_.size());
  const auto sorted = [this](const std::vector<double>& numbers, std::int64_t token) {
    const auto begin = numbers.begin() + token * per_token_;
    std::vector<double> experts(begin, begin + per_token_);
    std::sort(experts.begin(), experts.end());
    return experts;
  };
  std::int64_t others = 0;
  for (std::int64_t token = 0; token < tokens(); ++token) {
    others += sorted(numbers_, token) == sorted(other.numbers_, token) ? 0 : 1;
  }
  return others;
}

/// Layer by layer: MPI counts in int.
Status ExpertChoices::Join(World& world) {
  TIDEMARK_ASSIGN(const std::unique_ptr<Communicator> all, world.Split(0));
  const std::int64_t elements = samples_ * sequence_ * per_token_;
  for (std::int64_t layer = 0; layer < layers_; ++layer) {
    double* numbers = numbers_.data() + layer * elements;
    TIDEMARK_ASSIGN(const Communicator::Ticket ticket,
                    all->Begin({.dtype = DType::fp64, .elements = elements, .from = numbers, .to = numbers}));
    TIDEMARK_TRY(all->Finish(ticket));
  }
  const bool known = std::all_of(numbers_.begin(), numbers_.end(), [this](double number) {
    return number >= 1 && number <= static_cast<double>(experts_);
  });
  if (!known) {
    return Error{ErrorCode::internal, "", "some token's experts were chosen by no rank, or by several",
                 "this is a fault of tidemark: please report the job"};
  }
  return Done{};
}

}  // namespace tidemark
