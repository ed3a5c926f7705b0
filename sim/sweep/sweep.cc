// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/sweep.h"

#include <tbb/info.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

namespace tidemark {
namespace {

/// A chunk has about so many combinations. There are enough chunks for all threads to be busy to the end, and not too
/// many: their files are open all at once when they are merged.
constexpr std::int64_t kRowsOfChunk = 1 << 15, kFewestChunks = 64, kMostChunks = 512;

/// One thread's part of a run.
class Worker {
 public:
  Worker(const SweepGroups& groups, const SweepLimits& limits, JobTemplate job, std::int64_t groups_per_chunk,
         const Sweep::Handlers& handlers, std::mutex& mutex, Status& status)
      : pricer_(groups, limits, std::move(job)),
        groups_(groups),
        groups_per_chunk_(groups_per_chunk),
        handlers_(handlers),
        mutex_(mutex),
        status_(status) {}

  void Run() {
    while (const auto chunk = Next()) {
      PricedCombinations priced;
      Status result = Price(*chunk, priced);
      if (handlers_.cancelled()) {
        return;
      }
      if (result && handlers_.keep) {
        result = handlers_.keep(*chunk, priced);
      }
      const std::lock_guard lock(mutex_);
      if (result && status_) {
        result = handlers_.done(*chunk, std::move(priced));
      }
      if (!result && status_) {
        status_ = std::move(result);
      }
    }
  }

 private:
  std::optional<std::int64_t> Next() {
    const std::lock_guard lock(mutex_);
    return status_ && !handlers_.cancelled() ? handlers_.next() : std::nullopt;
  }

  Status Price(std::int64_t chunk, PricedCombinations& priced) {
    pricer_.BeginChunk();
    const std::int64_t first = chunk * groups_per_chunk_;
    const std::int64_t end = std::min(first + groups_per_chunk_, groups_.size());
    for (std::int64_t group = first; group < end && !handlers_.cancelled(); ++group) {
      TIDEMARK_TRY(pricer_.Price(group, priced));
    }
    return Done{};
  }

  GroupPricer pricer_;
  const SweepGroups& groups_;
  std::int64_t groups_per_chunk_;
  const Sweep::Handlers& handlers_;
  std::mutex& mutex_;
  Status& status_;
};

}  // namespace

Sweep::Sweep(SweepGroups groups, SweepLimits limits, JobTemplate job)
    : groups_(std::move(groups)), limits_(std::move(limits)), job_(std::move(job)) {
  const std::int64_t usual = std::min(kRowsOfChunk / groups_.RowsBefore(1), groups_.size() / kFewestChunks);
  groups_per_chunk_ = std::max({std::int64_t{1}, usual, CeilDiv(groups_.size(), kMostChunks)});
}

std::int64_t Sweep::RowsOf(std::int64_t chunk) const {
  const std::int64_t first = chunk * groups_per_chunk_;
  return groups_.RowsBefore(std::min(first + groups_per_chunk_, groups_.size())) - groups_.RowsBefore(first);
}

Status Sweep::Run(int threads, const Handlers& handlers) const {
  const int workers = threads > 0 ? threads : tbb::info::default_concurrency();
  std::mutex mutex;
  Status status = Done{};
  tbb::task_arena arena(workers);
  arena.execute([&] {
    tbb::task_group tasks;
    for (int i = 0; i < workers; ++i) {
      tasks.run([&] { Worker(groups_, limits_, job_, groups_per_chunk_, handlers, mutex, status).Run(); });
    }
    tasks.wait();
  });
  return status;
}

Result<double> Sweep::MeasureRate(double seconds) const {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kPlaces = 64;
  GroupPricer pricer(groups_, limits_, job_);
  const Clock::time_point start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  std::int64_t rows = 0;
  for (std::int64_t i = 0; i < kPlaces && (i == 0 || elapsed() < seconds); ++i) {
    // Far apart and in no order, so that few of them stand for the whole.
    const std::int64_t group = groups_.size() / kPlaces * (i * 37 % kPlaces) + groups_.size() % kPlaces * i / kPlaces;
    PricedCombinations priced;
    const std::int64_t taken = std::min(group, groups_.size() - 1);
    TIDEMARK_TRY(pricer.Price(taken, priced));
    rows += groups_.RowsBefore(taken + 1) - groups_.RowsBefore(taken);
  }
  return static_cast<double>(rows) / std::max(elapsed(), 1e-6);
}

}  // namespace tidemark
