// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/deepspeed/deepspeed_offload.h"

#include <algorithm>
#include <utility>

namespace tidemark {
namespace {

/// Whether a microbatch's reduced gradients wait for those of another one.
bool IsOneOfSeveral(const WindowPlace& place) { return place.reduced || !place.last; }

bool SumsOnHost(const Job& job) {
  const Result<std::vector<WindowRun>> windows = WindowsOf(job);
  return windows.ok() && std::any_of(windows->begin(), windows->end(), [](const WindowRun& run) {
           return run.place.synchronises && IsOneOfSeveral(run.place);
         });
}

std::int64_t LargestTrained(const Role& role) {
  std::int64_t largest = 0;
  for (const StageRun& run : role.stage.runs) {
    for (const Parameter& parameter : run.block().parameters) {
      largest = std::max(largest, IsTrained(parameter) ? parameter.elements : 0);
    }
  }
  return largest;
}

}  // namespace

OffloadedGradients::OffloadedGradients(Role& role, FlatParameters& flat, StreamId kernels)
    : role_(role), flat_(flat), kernels_(kernels), type_(role.job.axes.precision.params) {
  if (!role.job.axes.optimizer_step.offload || flat.elements() == 0) {
    return;
  }
  const bool sums = SumsOnHost(role.job);
  sum_exists_ = sums && role.step != StepKind::first;
  const std::int64_t largest = LargestTrained(role);
  sum_ = DeclareOnHost(role, "sum of own part", Category::accumulator, type_, flat.part(), sum_exists_, sums);
  gradient_ =
      DeclareOnHost(role, "gradient of the masters", Category::gradient, flat.master_type(), flat.part(), true, true);
  DeclareOnHost(role, "largest gradient on the host", Category::bucket, type_, largest, true, true);
  landing_ = {role.builder.AddBuffer({"landing place of one gradient",
                                      Category::bucket,
                                      type_,
                                      largest,
                                      {1, 1},
                                      kernels,
                                      Place::device,
                                      true,
                                      true}),
              {}};
  cast_ = flat.Declare("cast gradient", Category::bucket, flat.master_type(), std::min(largest, flat.part()), kernels);
}

void OffloadedGradients::Take(const BufferRef& content, std::int64_t elements, bool first) {
  if (place_.reduced) {
    AddSum(content, elements);
  }
  if (IsOneOfSeveral(place_)) {
    KeepSum(content, elements, first);
  }
  if (place_.last) {
    if (first) {
      flat_.clip().BeginParts();
    }
    flat_.clip().MeasurePart(kernels_, content, elements);
    PassOn(content, elements, first);
  }
}

void OffloadedGradients::AddSum(const BufferRef& content, std::int64_t elements) {
  CopyOverLink(role_, "sum to device", kernels_, {sum_}, {landing_}, elements, type_);
  role_.MemoryKernel("add sum", kernels_, Work::compute, {content, landing_}, {content}, elements,
                     SizeOf(type_) * 3 * elements);
}

void OffloadedGradients::KeepSum(const BufferRef& content, std::int64_t elements, bool first) {
  if (first && !std::exchange(sum_exists_, true)) {
    role_.Alloc(sum_);
  }
  CopyOverLink(role_, "sum to host", kernels_, Beside(content, sum_, first), {sum_}, elements, type_);
}

void OffloadedGradients::PassOn(const BufferRef& content, std::int64_t elements, bool first) {
  const bool casts = type_ != flat_.master_type();
  if (casts) {
    role_.Alloc(cast_);
    role_.MemoryKernel("cast own part", kernels_, Work::compute, {content}, {cast_}, elements,
                       (SizeOf(type_) + SizeOf(flat_.master_type())) * elements);
  }
  CopyOverLink(role_, "gradient to host", kernels_, Beside(casts ? cast_ : content, gradient_, first), {gradient_},
               elements, flat_.master_type());
  if (casts) {
    role_.Free(cast_);
  }
}

/// Each bucket goes to its own slice of what is on the host. Verify knows no slices: to it a buffer holds all that was
/// packed into it. So a bucket to which the sum was added brings along what earlier ones have put there, and any other
/// bucket but the first keeps it.
std::vector<BufferRef> OffloadedGradients::Beside(const BufferRef& from, const BufferRef& on_host, bool first) const {
  return first || place_.reduced ? std::vector<BufferRef>{from} : std::vector<BufferRef>{from, on_host};
}

}  // namespace tidemark
