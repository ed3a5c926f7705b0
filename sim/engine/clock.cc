// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/clock.h"

namespace tidemark {
namespace {

/// One loop without messages, as RunRegime sees it.
class LoopSystem {
 public:
  LoopSystem(Clock& clock, std::size_t at, std::size_t end, RegimeScratch& scratch)
      : clock_(clock), at_(at), end_(end), scratch_(scratch), outer_choices_(clock.choices) {}

  std::size_t moments() const { return clock_.moments(); }
  void Save(std::vector<std::int64_t>& values) const { values = clock_.values(); }
  void Load(const std::vector<std::int64_t>& values) { clock_.values() = values; }
  std::uint64_t Iterate() {
    clock_.choices = 0;
    clock_.Run(at_, end_, scratch_);
    return clock_.choices;
  }
  void Skipped(std::int64_t) {}
  /// The loop as one choice of the surrounding iteration.
  void Finish(std::uint64_t choices) { clock_.choices = MixChoices(outer_choices_, choices); }

 private:
  Clock& clock_;
  std::size_t at_, end_;
  RegimeScratch& scratch_;
  std::uint64_t outer_choices_;
};

}  // namespace

void Clock::Run(std::size_t at, std::size_t end, RegimeScratch& scratch) {
  while (at < end) {
    const Op& op = program_.ops[at++];
    if (op.code == Op::Code::kernels) {
      at += Kernels(op) ? op.other : 0;
      continue;
    }
    if (op.code != Op::Code::repeat) {
      Do(op);
      continue;
    }
    LoopSystem loop(*this, at, at + op.other, scratch);
    loop.Finish(RunRegime(loop, op.amount, scratch));
    at += op.other;
  }
}

StepTime Clock::Time() {
  const std::int64_t end = End();
  Idle(CauseOfEnd(end), end);
  const auto part = [&](std::uint8_t which) { return Nanos(PartOf(which)); };
  return {Nanos(end),     part(kCompute), part(kRecompute), part(kOptimizer),
          part(kExposed), part(kBubble),  part(kHostIdle)};
}

}  // namespace tidemark
