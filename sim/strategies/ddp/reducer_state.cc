// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/ddp/reducer_state.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace tidemark {
namespace {

/// The windows of a job that its strategy has accepted.
std::vector<WindowRun> WindowsOfAccepted(const Job& job) {
  Result<std::vector<WindowRun>> windows = WindowsOf(job);
  TIDEMARK_CHECK(windows.ok());
  return std::move(*windows);
}

/// The windows of an ordinary step: all microbatches are there.
std::vector<WindowRun> UsualWindows(const Job& job) {
  if (job.last_window == LastWindow{}) {
    return WindowsOfAccepted(job);
  }
  Job usual = job;
  usual.last_window = {};
  return WindowsOfAccepted(usual);
}

/// The number of synchronised backward passes, up to `limit`, and which backward pass the last counted one is.
struct Synchronised {
  std::int64_t count = 0, last = -1;
};

Synchronised CountSynchronised(const std::vector<WindowRun>& windows, std::int64_t limit) {
  Synchronised found;
  std::int64_t order = 0;
  for (const WindowRun& run : windows) {
    const std::int64_t more = run.place.synchronises ? std::min(run.count, limit - found.count) : 0;
    if (more > 0) {
      found = {found.count + more, order + more - 1};
    }
    order += run.count;
  }
  return found;
}

/// Whether the optimizer steps behind the `order`-th backward pass of a step.
bool UpdateFollows(const std::vector<WindowRun>& windows, std::int64_t order) {
  std::int64_t end = 0;
  return std::ranges::any_of(windows, [&](const WindowRun& run) {
    end += run.count;
    return run.place.last && end > order;
  });
}

/// Where in a schedule a pass is: run, iteration, slot.
using When = std::array<std::int64_t, 3>;

/// Whether a forward pass of the same step comes after the `order`-th backward pass, or at all where that is -1. A step
/// that has fewer of them, or that runs the chunk on one half of the microbatches only, ends before it.
bool ForwardFollows(const Role& role, std::int64_t order) {
  When backward{-1, 0, 0}, last_forward{-1, 0, 0};
  std::int64_t before = 0;  // backward passes
  for (std::int64_t run = 0; run < std::ssize(role.program.slots); ++run) {
    const SlotRun& of = role.program.slots[static_cast<std::size_t>(run)];
    std::vector<std::int64_t> completing;  // slots
    for (std::int64_t i = 0; i < std::ssize(of.slots); ++i) {
      const Slot& slot = of.slots[static_cast<std::size_t>(i)];
      const bool own = slot.chunk == role.stage.chunk && of.count > 0;
      if (own && slot.pass == Pass::forward) {
        last_forward = {run, of.count - 1, i};
      }
      if (own && (slot.pass == Pass::backward || slot.pass == Pass::backward_weight)) {
        completing.push_back(i);
      }
    }
    const std::int64_t each = std::ssize(completing), passes = each * of.count;
    if (order >= before && order < before + passes) {
      const std::int64_t in_run = order - before;
      backward = {run, in_run / each, completing[static_cast<std::size_t>(in_run % each)]};
    }
    before += passes;
  }
  return (order < 0 || backward.front() >= 0) && last_forward > backward;
}

}  // namespace

ReducerState::ReducerState(const Role& role, const Rules& rules) : rules_(rules) {
  const std::int64_t limit = rules.UntilRebuilt();
  const std::vector<WindowRun> windows = UsualWindows(role.job);
  const Synchronised before = CountSynchronised(windows, std::max<std::int64_t>(limit, 1));
  rebuilt_ = limit == 0;
  never_ = before.count == 0 || (before.count < limit && !UpdateFollows(windows, before.last));
  if (role.step == StepKind::first) {
    return;
  }
  const bool steady = role.step == StepKind::steady;
  synchronised_ = steady && before.count > 0 ? limit : std::min(before.count, limit);
  rebuilt_ = rebuilt_ || (!never_ && (steady || (before.count == limit && ForwardFollows(role, before.last))));
  if (rules.stay) {
    gradients_ = rules.views && before.count > 0 ? Gradients::in_bucket : Gradients::own;
  }
}

bool ReducerState::IsRebuiltAtEnd(const Role& role) const {
  if (rebuilt_ || never_) {
    return rebuilt_;
  }
  const std::int64_t left = rules_.UntilRebuilt() - synchronised_;
  const std::vector<WindowRun> windows = WindowsOfAccepted(role.job);
  const Synchronised now = CountSynchronised(windows, left);
  const bool behind_update = role.step == StepKind::second && UpdateFollows(windows, now.last);
  return now.count == left && (behind_update || ForwardFollows(role, now.last));
}

bool ReducerState::EndUpdate(const Role& role) { return role.step == StepKind::second && BeginForward(); }

bool ReducerState::BeginForward() {
  const bool rebuilds = !rebuilt_ && !never_ && synchronised_ == rules_.UntilRebuilt();
  rebuilt_ |= rebuilds;
  return rebuilds;
}

void ReducerState::EndBackward(bool synchronised) {
  if (synchronised) {
    synchronised_ = std::min(synchronised_ + 1, rules_.UntilRebuilt());
  }
  if (synchronised && rules_.views) {
    gradients_ = Gradients::in_bucket;
  } else if (gradients_ == Gradients::absent) {
    gradients_ = Gradients::own;
  }
}

ReducerState::Gradients ReducerState::GradientsAtEnd(const Role& role) const {
  if (!rules_.stay) {
    return Gradients::absent;
  }
  const bool moved = rules_.views && CountSynchronised(WindowsOfAccepted(role.job), 1).count > 0;
  return moved || gradients_ == Gradients::in_bucket ? Gradients::in_bucket : Gradients::own;
}

}  // namespace tidemark
