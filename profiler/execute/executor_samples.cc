// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/random_bits.h"
#include "profiler/capture/annotations.h"
#include "profiler/capture/heap.h"
#include "profiler/execute/executor.h"
#include "profiler/execute/host_copy.h"
#include "profiler/execute/link_copy.h"
#include "profiler/execute/name_hash.h"
#include "sim/program/stages.h"

// What a rank takes from the host, the training's samples above all, and by which random numbers it drops.

namespace tidemark {
namespace {

/// As many bytes as asked for, of masks of one sequence each: 1 where a query may not see a key.
std::vector<std::uint8_t> CausalMask(std::int64_t sequence, std::int64_t bytes) {
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(bytes));
  for (std::int64_t i = 0; i < bytes; ++i) {
    mask[static_cast<std::size_t>(i)] = i % sequence > i / sequence % sequence ? 1 : 0;
  }
  return mask;
}

}  // namespace

Status Executor::Do(const Copy& leaf, Loops loops) {
  if (const auto between = LinkCopy(leaf)) {
    return Do(*between, loops);
  }
  const HeapScope scope(HeapOwner::data);
  const std::string& name = program_->names[leaf.name.index];
  const AnnotatedRange range = recorder_.Operation(name);
  UseOn(leaf.stream, leaf.writes, loops);
  const Started started = StartOn(leaf.stream, name);
  for (const BufferRef& ref : leaf.writes) {
    TIDEMARK_ASSIGN(const kernels::TensorType type, HostCopyType(job_, model_, name, BufferOf(ref)));
    held_[SlotOf(ref, loops)].type = type;
    const auto put = [&](const void* from) {
      device_.Put(leaf.stream.index, from, DataAt(ref, loops), SizeOf(type.dtype) * type.elements);
    };
    if (IsUsedParameters(name)) {
      put(std::vector<std::int32_t>(static_cast<std::size_t>(type.elements), 1).data());
    } else if (IsAttentionMask(name)) {
      put(CausalMask(job_.sequence_length, type.elements).data());
    } else {
      put(SamplesOf(name, BufferOf(ref)).data());
    }
  }
  EndOn(leaf.stream, name, started);
  return Done{};
}

std::vector<std::int64_t> Executor::SamplesOf(std::string_view copy, const Buffer& to) const {
  const Block& block = model_.BlockOfAction(WithoutStage(to.name));
  const std::int64_t sequences = model_.SequencesOf(block);
  const SequenceShare share = ShareOfSequences();
  std::vector<std::int64_t> ids, row(static_cast<std::size_t>(job_.sequence_length));
  const std::int64_t first = FirstSample(microbatch_);
  for (std::int64_t i = 0; i < sequences; ++i) {
    // Of a pair's second side, or of both in one batch, the queries in front.
    const bool second = block.tower == 1 || side_ == Side::passage;
    const std::int64_t queries = second ? 0 : std::min(sequences, model_.samples());
    const bool passage = i >= queries;
    const std::int64_t sample = passage ? first * model_.pair()->targets + i - queries : first + i;
    const Batches& batches = batches_[passage ? 1 : 0];
    copy.ends_with("labels") ? batches.Labels(sample, row) : batches.Ids(sample, row);
    for (std::int64_t token = 0; token < share.tokens(); ++token) {
      ids.push_back(row[static_cast<std::size_t>(share.PlaceOf(token))]);
    }
  }
  return ids;
}

SequenceShare Executor::ShareOfSequences() const {
  const auto group = groups_.find("cp");
  return {group == groups_.end() ? 0 : group->second->rank(), job_.layout.cp, job_.sequence_length};
}

std::pair<std::int64_t, std::int64_t> Executor::DataRank() const {
  std::int64_t ranks = 1, rank = 0;
  for (const char* name : {"replicas", "dp"}) {
    const auto group = groups_.find(name);
    const std::int64_t size = group == groups_.end() ? 1 : group->second->size();
    rank = rank * size + (group == groups_.end() ? 0 : group->second->rank());
    ranks *= size;
  }
  return {rank / job_.layout.cp, ranks / job_.layout.cp};  // those that share sequences stand side by side
}

std::int64_t Executor::FirstSample(std::int64_t microbatch) const {
  const auto [rank, ranks] = DataRank();
  return ((step_ * job_.Microbatches() + std::max<std::int64_t>(microbatch, 0)) * ranks + rank) * model_.samples();
}

/// The same for an operation of the same layer, whichever pass it is in: "layer.wo_dropout.forward" and its backward.
std::uint64_t Executor::SeedOf(std::string_view name, std::int64_t layer) const {
  const std::string_view operation = name.substr(0, name.rfind('.'));
  return kernels::RandomBits(options_.seed ^ HashOf(operation) ^
                             kernels::RandomBits(static_cast<std::uint64_t>(layer)) ^
                             kernels::RandomBits(kernels::RandomBits(static_cast<std::uint64_t>(step_))));
}

kernels::ConstTensor Executor::PutLabels(StreamId stream) {
  const auto count = std::ssize(labels_.labels);
  const Bytes bytes = SizeOf(DType::int64) * count;
  if (!labels_room_) {
    labels_room_ = device_.RoomFor(bytes);
  }
  device_.Put(stream.index, labels_.labels.data(), labels_room_->data(), bytes);
  return {{DType::int64, count}, labels_room_->data()};
}

CountedLabels Executor::CountLabels() const {
  const HeapScope scope(HeapOwner::data);
  const Batches& batches = batches_.front();
  const std::int64_t own = FirstSample(microbatch_), samples = model_.samples(), length = job_.sequence_length;
  CountedLabels counted;
  counted.labels.resize(static_cast<std::size_t>(samples * length));
  for (std::int64_t i = 0; i < samples; ++i) {
    batches.Labels(
        own + i,
        std::span(counted.labels).subspan(static_cast<std::size_t>(i * length), static_cast<std::size_t>(length)));
  }
  const auto [rank, ranks] = DataRank();
  const auto mean_of = [&](std::int64_t first, std::int64_t microbatches) {
    double tokens = 0;
    for (std::int64_t i = 0; i < microbatches * samples; ++i) {
      tokens += static_cast<double>(batches.CountedOf(first + i));
    }
    return tokens / static_cast<double>(microbatches);
  };
  switch (job_.axes.loss_scale) {
    case LossScale::microbatches:
      counted.divisor = mean_of(own, 1);
      break;
    case LossScale::global_batch:
      counted.divisor = mean_of(own - rank * samples, ranks);
      break;
    case LossScale::global_tokens:
    case LossScale::summed_tokens:
      counted.divisor = mean_of(step_ * job_.Microbatches() * ranks * samples, job_.Microbatches() * ranks);
      break;
  }
  return counted;
}

}  // namespace tidemark
