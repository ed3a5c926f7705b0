// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/megatron/fp32_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tidemark {

std::size_t Fp32Exchange::Find(const GradientBucket& bucket) const {
  const auto found = std::find_if(under_way_.begin(), under_way_.end(), [&](const Exchange& exchange) {
    return exchange.bucket.members.front() == bucket.members.front();
  });
  return static_cast<std::size_t>(std::distance(under_way_.begin(), found));
}

BufferId Fp32Exchange::FreeOutput(std::int64_t elements) {
  for (const BufferId output : outputs_) {
    const bool in_use = std::any_of(under_way_.begin(), under_way_.end(),
                                    [&](const Exchange& exchange) { return exchange.output == output; });
    if (!in_use && role_.builder.buffer(output).elements == elements) {
      return output;
    }
  }
  outputs_.push_back(role_.builder.AddBuffer({fmt::format("all-to-all output {}", outputs_.size() + 1),
                                              Category::bucket,
                                              role_.job.axes.precision.accumulate,
                                              elements,
                                              {1, 1},
                                              role_.compute}));
  return outputs_.back();
}

BufferId Fp32Exchange::SumOf(std::int64_t elements) {
  const auto found = sums_.find(elements);
  if (found != sums_.end()) {
    return found->second;
  }
  const std::string name = fmt::format("fp32 sum {}", sums_.size() + 1);
  return sums_[elements] =
             role_.builder.AddBuffer({name, Category::bucket, DType::fp32, elements, {1, 1}, role_.compute});
}

void Fp32Exchange::Launch(const GradientBucket& bucket, const std::vector<BufferRef>& gradients) {
  const BufferId output = FreeOutput(bucket.elements);
  role_.Alloc({output, {}});
  role_.builder.Order(stream_, role_.compute, "bucket ready");
  role_.builder.Emit(Collective{role_.builder.Named("exchange bucket"),
                                CollectiveKind::all_to_all,
                                Reduction::sum,
                                Rational(1),
                                group_,
                                role_.job.axes.precision.accumulate,
                                bucket.elements,
                                stream_,
                                gradients,
                                {{output, {}}}});
  under_way_.push_back({bucket, output});
}

void Fp32Exchange::Drain(const GradientBucket& bucket, const std::vector<BufferRef>& gradients) {
  const std::size_t at = Find(bucket);
  TIDEMARK_CHECK(at < under_way_.size());
  const BufferRef output{under_way_[at].output, {}};
  const std::int64_t part = bucket.elements / role_.job.layout.GradientRanks();
  const BufferRef sum{SumOf(part), {}};
  const Bytes narrow = SizeOf(role_.job.axes.precision.accumulate), wide = SizeOf(DType::fp32);
  role_.builder.Order(role_.compute, stream_, "bucket exchanged");
  role_.Alloc(sum);
  role_.MemoryKernel("sum parts in fp32", role_.compute, Work::compute, {output}, {sum}, bucket.elements,
                     narrow * bucket.elements + wide * part);
  Compute store{role_.builder.Named("store sum"),
                Pointwise{part, ((narrow + wide) * part).count(), 1},
                role_.compute,
                Work::compute,
                Rational(1),
                {sum},
                gradients};
  store.own_part = true;
  role_.builder.Emit(std::move(store));
  role_.Free(sum);
  role_.Free(output);
  under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(at));
}

std::vector<std::int64_t> Fp32Exchange::Key(std::int64_t position, bool absolutely) const {
  constexpr std::int64_t kNext = INT64_MIN + 1;
  std::vector<std::int64_t> key;
  for (const Exchange& exchange : under_way_) {
    key.insert(key.end(), {kNext, exchange.output.index, exchange.bucket.elements});
    for (const ParameterAt& member : exchange.bucket.members) {
      key.push_back(absolutely ? member.position : role_.KeyOf(member.position, position));
      key.push_back(member.parameter);
    }
  }
  return key;
}

void Fp32Exchange::Shift(std::int64_t position, std::int64_t blocks) {
  for (Exchange& exchange : under_way_) {
    if (role_.stage.RunOf(exchange.bucket.completed_in) == role_.stage.RunOf(position)) {
      exchange.bucket.completed_in += blocks;
      for (ParameterAt& member : exchange.bucket.members) {
        member.position += blocks;
      }
    }
  }
}

}  // namespace tidemark
