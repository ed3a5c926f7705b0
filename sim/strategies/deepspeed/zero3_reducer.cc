// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/deepspeed/zero3_reducer.h"

#include <string>

#include "sim/strategies/deepspeed/zero3_fetcher.h"

namespace tidemark {

Zero3Reducer::Zero3Reducer(Role& role, GroupId group)
    : role_(role),
      precision_(role.job.axes.precision),
      ranks_(role.job.layout.GradientRanks()),
      stream_(role.builder.AddStream("reduce_and_partition", StreamKind::collective)),
      group_(group) {
  Declare();
  PlanArrivals();
}

void Zero3Reducer::Declare() {
  gradients_.Declare(role_, "gradient of", Category::gradient, precision_.gradients, ParameterTable::Of::trained,
                     false);
  for (const StageRun& run : role_.stage.runs) {
    std::int64_t elements = 0;
    for (const Parameter& parameter : run.block().parameters) {
      elements += IsTrained(parameter) ? CeilDiv(parameter.elements, ranks_) : 0;
    }
    partition_elements_.push_back(elements);
  }
  if (role_.job.axes.optimizer_step.offload) {
    offload_.emplace(role_, stream_, partition_elements_);
  } else {
    partitions_ = role_.PerBlock("gradient partitions of", partition_category(), precision_.accumulate, role_.compute,
                                 partition_elements_, true, true, PartitionsOf(role_, false));
  }
  const std::int64_t elements = role_.job.axes.sync.bucket_elements;
  bucket_ = role_.builder.AddBuffer({.name = "gradient bucket",
                                     .category = Category::bucket,
                                     .dtype = precision_.reduce,
                                     .elements = elements,
                                     .stream = stream_,
                                     .resident = true,
                                     .kept = true});
  bucket_scattered_ = ScatteredIn(bucket_);
}

/// The second name of a buffer.
BufferId Zero3Reducer::ScatteredIn(BufferId whole) {
  if (ranks_ == 1) {
    return whole;
  }
  const Buffer& base = role_.builder.buffer(whole);
  return role_.builder.AddBuffer({.name = "scattered in " + base.name,
                                  .category = Category::bucket,
                                  .dtype = base.dtype,
                                  .elements = base.elements,
                                  .stream = stream_,
                                  .base = whole});
}

/// Gradients arrive in the order of the backward kernels that make them; a tied one with the embedding's.
void Zero3Reducer::PlanArrivals() {
  std::vector<ArrivingGradient> gradients;
  for (std::int64_t position = 0; position < role_.stage.blocks; ++position) {
    arrival_.emplace_back(role_.stage.BlockAt(position).parameters.size(), -1);
  }
  for (std::int64_t position = role_.stage.blocks - 1; position >= 0; --position) {
    const Block& block = role_.stage.BlockAt(position);
    for (const Action& action : block.backward) {
      const auto* calculate = std::get_if<Calculate>(&action);
      for (std::size_t i = 0; calculate != nullptr && i < calculate->gradients.size(); ++i) {
        const std::uint32_t parameter = calculate->gradients[i].index;
        if (IsTrained(block.parameters[parameter])) {
          arrival_[static_cast<std::size_t>(position)][parameter] = static_cast<std::int64_t>(gradients.size());
          gradients.push_back({{position, parameter}, block.parameters[parameter].elements});
        }
      }
    }
  }
  plan_ = PlanBuckets(gradients, role_.job.axes.sync.bucket_elements, ranks_);
}

void Zero3Reducer::Arrive(const Microbatch& microbatch, const ParameterAt& at) {
  const std::int64_t number = arrival_[static_cast<std::size_t>(at.position)][at.parameter];
  const GradientArrival& arrival = plan_.arrivals[static_cast<std::size_t>(number)];
  if (arrival.flush) {
    Flush(microbatch, *arrival.flush);
  }
  if (!arrival.copied) {
    return;
  }
  if (arrival.waits) {
    role_.builder.Emit(Wait{role_.builder.Event("bucket read"), role_.compute});
  }
  const BufferRef gradient = Gradient(at);
  const std::int64_t elements = ParameterOf(role_, at).elements;
  std::vector<BufferRef> reads{gradient};
  if (arrival.joins) {
    reads.push_back({bucket_, {}});
  }
  role_.MemoryKernel("gradient to bucket", role_.compute, Work::compute, std::move(reads), {{bucket_, {}}}, elements,
                     (SizeOf(precision_.gradients) + SizeOf(precision_.reduce)) * elements);
  role_.Free(gradient);
}

/// DeepSpeed's epilogue synchronises the host with the reduction stream after every backward pass.
void Zero3Reducer::Finish(const Microbatch& microbatch) {
  if (plan_.last) {
    Flush(microbatch, *plan_.last);
  }
  role_.builder.Emit(HostSync{stream_});
}

bool Zero3Reducer::InPlace(const BucketFlush& flush) const {
  return flush.one_whole && (flush.from_bucket || precision_.reduce == precision_.gradients);
}

void Zero3Reducer::Flush(const Microbatch& microbatch, const BucketFlush& flush) {
  role_.builder.Order(stream_, role_.compute, "gradients ready");
  std::vector<BufferRef> sources;
  if (flush.from_bucket) {
    sources.push_back({bucket_, {}});
  }
  for (const ParameterAt& at : flush.apart) {
    sources.push_back(Gradient(at));
  }
  const BufferRef scattered = InPlace(flush) ? ScatterInPlace(flush, sources.front()) : Scatter(flush, sources);
  AddToPartitions(microbatch, flush, scattered);
  if (InPlace(flush) && flush.from_bucket) {
    role_.builder.Emit(Record{role_.builder.Event("bucket read"), stream_});
  }
  if (!flush.apart.empty() || !role_.job.axes.sync.overlap) {
    role_.builder.Order(role_.compute, stream_, "gradients scattered");
  }
  for (const ParameterAt& at : flush.apart) {
    role_.Free(Gradient(at));
  }
}

const Zero3Reducer::Transients& Zero3Reducer::TransientsOf(std::int64_t elements) {
  const auto [found, added] = transients_.try_emplace(elements);
  if (added) {
    const std::int64_t own = elements / ranks_;
    const std::string size = std::to_string(elements) + " gradients";
    const auto add = [&](const std::string& name, DType dtype, std::int64_t count) {
      return role_.builder.AddBuffer({name + size, Category::bucket, dtype, count, {1, 1}, stream_});
    };
    Transients& transients = found->second;
    transients.interleaved = add("interleaved ", precision_.reduce, elements);
    transients.scattered = ScatteredIn(transients.interleaved);
    transients.apart = add("own part of ", precision_.reduce, own);
    if (precision_.accumulate != precision_.reduce) {
      transients.widened = add("widened part of ", precision_.accumulate, own);
    }
  }
  return found->second;
}

/// Interleaving puts what each rank will get side by side; the scatter then leaves this rank's part where it is in the
/// interleaved buffer. The division is one more pass over it.
BufferRef Zero3Reducer::Scatter(const BucketFlush& flush, const std::vector<BufferRef>& sources) {
  const Transients& transients = TransientsOf(flush.elements);
  const BufferRef interleaved{transients.interleaved, {}}, scattered{transients.scattered, {}};
  role_.Alloc(interleaved);
  role_.MemoryKernel("interleave and divide gradients", stream_, Work::compute, sources, {interleaved}, flush.elements,
                     SizeOf(precision_.reduce) * 4 * flush.elements, Rational(1, ranks_));
  if (flush.from_bucket) {
    role_.builder.Emit(Record{role_.builder.Event("bucket read"), stream_});
  }
  if (ranks_ > 1) {
    EmitReduceScatter(flush.elements, interleaved, scattered);
  }
  return scattered;
}

BufferRef Zero3Reducer::ScatterInPlace(const BucketFlush& flush, const BufferRef& source) {
  role_.MemoryKernel("divide gradient", stream_, Work::compute, {source}, {source}, flush.elements,
                     SizeOf(precision_.reduce) * 2 * flush.elements, Rational(1, ranks_));
  if (ranks_ == 1) {
    return source;
  }
  const BufferRef own{flush.from_bucket ? bucket_scattered_ : TransientsOf(flush.elements).apart, {}};
  if (!flush.from_bucket) {
    role_.Alloc(own);
  }
  EmitReduceScatter(flush.elements, source, own);
  return own;
}

void Zero3Reducer::EmitReduceScatter(std::int64_t elements, const BufferRef& from, const BufferRef& to) {
  role_.builder.Emit(Collective{role_.builder.Named("scatter gradients"),
                                CollectiveKind::reduce_scatter,
                                Reduction::sum,
                                Rational(1),
                                group_,
                                precision_.reduce,
                                elements,
                                stream_,
                                {from},
                                {to}});
}

void Zero3Reducer::AddToPartitions(const Microbatch& microbatch, const BucketFlush& flush, const BufferRef& scattered) {
  const bool in_place = InPlace(flush);
  const auto free_scattered = [&] {
    if (!in_place) {
      role_.Free({TransientsOf(flush.elements).interleaved, {}});
    } else if (ranks_ > 1 && !flush.from_bucket) {
      role_.Free(scattered);
    }
  };
  const BufferId widened =
      precision_.accumulate == precision_.reduce ? BufferId{} : TransientsOf(flush.elements).widened;
  BufferRef from = scattered;
  if (widened.valid()) {
    from = {widened, {}};
    role_.Alloc(from);
    const std::int64_t elements = flush.elements / ranks_;
    role_.MemoryKernel("cast scattered gradients", stream_, Work::compute, {scattered}, {from}, elements,
                       (SizeOf(precision_.reduce) + SizeOf(precision_.accumulate)) * elements);
    free_scattered();
  }
  for (const BucketFlush::Part& part : flush.parts) {
    if (offload_) {
      offload_->Take(microbatch, part, from, *clip_);
    } else {
      AddToPartition(microbatch, part, from);
    }
  }
  if (widened.valid()) {
    role_.Free(from);
  } else {
    free_scattered();
  }
}

void Zero3Reducer::AddToPartition(const Microbatch& microbatch, const BucketFlush::Part& part, const BufferRef& from) {
  const BufferRef partition = Partition(part.position);
  std::vector<BufferRef> reads{from};
  if (!microbatch.first() || part.again) {
    reads.push_back(partition);
  }
  role_.MemoryKernel(microbatch.first() ? "keep scattered gradients" : "add scattered gradients", stream_,
                     Work::compute, std::move(reads), {partition}, part.elements,
                     SizeOf(precision_.accumulate) * (microbatch.first() ? 2 : 3) * part.elements);
}

void Zero3Reducer::Describe(std::int64_t position, std::vector<std::int64_t>& description) const {
  const auto relative = [&](std::int64_t other) { return role_.KeyOf(other, position); };
  for (const std::int64_t number : arrival_[static_cast<std::size_t>(position)]) {
    if (number < 0) {
      continue;
    }
    const GradientArrival& arrival = plan_.arrivals[static_cast<std::size_t>(number)];
    description.insert(description.end(), {arrival.copied ? 1 : 0, arrival.joins ? 1 : 0, arrival.waits ? 1 : 0,
                                           arrival.flush ? arrival.flush->elements : -1});
    if (!arrival.flush) {
      continue;
    }
    const BucketFlush& flush = *arrival.flush;
    description.insert(description.end(), {flush.from_bucket ? 1 : 0, flush.one_whole ? 1 : 0,
                                           static_cast<std::int64_t>(flush.parts.size())});
    for (const BucketFlush::Part& part : flush.parts) {
      description.insert(description.end(), {relative(part.position), part.elements, part.again ? 1 : 0});
    }
    for (const ParameterAt& at : flush.apart) {
      description.insert(description.end(), {relative(at.position), at.parameter});
    }
  }
}

}  // namespace tidemark
