// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/pointwise.h"
#include "profiler/comm/communicator.h"
#include "tests/profiler/execute/executed_job.h"

namespace tidemark {

// Ranks as threads of a test: all meet where a collective is begun; its result is there when it is finished, not
// before.

/// What the members of a group lay down for each other. All must come before any goes on.
class Rendezvous {
 public:
  explicit Rendezvous(std::int64_t members) : laid_(static_cast<std::size_t>(members)) {}

  /// Lays down `own`, and looks at everybody's: what they point to stays until all have looked.
  void Meet(std::int64_t member, Exchange own, double value, const std::function<void(const Rendezvous&)>& look) {
    laid_[static_cast<std::size_t>(member)] = {own, value};
    Gather();
    look(*this);
    Gather();
  }

  /// From one member to another, by tag.
  using Way = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

  void Post(const Way& way, std::vector<char> bytes) {
    const std::lock_guard lock(mutex_);
    posted_[way].push_back(std::move(bytes));
    message_.notify_all();
  }

  bool Has(const Way& way) {
    const std::lock_guard lock(mutex_);
    return !posted_[way].empty();
  }

  std::vector<char> Take(const Way& way) {
    std::unique_lock lock(mutex_);
    message_.wait(lock, [&] { return !posted_[way].empty(); });
    std::vector<char> bytes = std::move(posted_[way].front());
    posted_[way].pop_front();
    return bytes;
  }

  std::int64_t size() const { return static_cast<std::int64_t>(laid_.size()); }
  const Exchange& exchange(std::int64_t member) const { return laid_[static_cast<std::size_t>(member)].exchange; }
  double value(std::int64_t member) const { return laid_[static_cast<std::size_t>(member)].value; }

 private:
  struct Laid {
    Exchange exchange;
    double value = 0;
  };

  void Gather() {
    std::unique_lock lock(mutex_);
    const std::int64_t round = round_;
    if (++here_ == size()) {
      here_ = 0;
      ++round_;
      all_here_.notify_all();
    } else {
      all_here_.wait(lock, [&] { return round_ != round; });
    }
  }

  std::vector<Laid> laid_;
  std::mutex mutex_;
  std::condition_variable all_here_, message_;
  std::map<Way, std::deque<std::vector<char>>> posted_;
  std::int64_t here_ = 0, round_ = 0;
};

/// kernels::Copy, which knows no int32: that becomes fp64 and back.
inline void Convert(const kernels::ConstTensor& from, const kernels::Tensor& to) {
  const auto each = [&](auto* target, const auto* source) {
    ASSERT_TRUE(from.type.dtype == DType::fp64 || to.type.dtype == DType::fp64);
    std::copy_n(source, from.type.elements, target);
  };
  if (from.type.dtype == DType::int32) {
    each(static_cast<double*>(to.data), static_cast<const std::int32_t*>(from.data));
  } else if (to.type.dtype == DType::int32) {
    each(static_cast<std::int32_t*>(to.data), static_cast<const double*>(from.data));
  } else {
    kernels::Copy(from, to);
  }
}

/// What an exchange of all ranks leaves with one of them. Sums are made in fp64 and rounded once.
inline std::vector<char> ResultOf(const std::vector<Exchange>& all, std::int64_t rank) {
  const Exchange& any = all.front();
  const auto ranks = std::ssize(all);
  std::vector<char> bytes;
  const auto append = [&](const void* from, std::int64_t elements) {
    const auto* begin = static_cast<const char*>(from);
    bytes.insert(bytes.end(), begin, begin + (SizeOf(any.dtype) * elements).count());
  };
  if (any.kind == CollectiveKind::broadcast) {
    append(all[static_cast<std::size_t>(any.root)].to, any.elements);
    return bytes;
  }
  if (any.kind == CollectiveKind::all_gather) {
    for (const Exchange& one : all) {
      append(one.from, one.elements / ranks);
    }
    return bytes;
  }
  if (any.kind == CollectiveKind::all_to_all) {
    const std::int64_t part = any.elements / ranks;
    for (const Exchange& one : all) {
      append(static_cast<const char*>(one.from) + (SizeOf(any.dtype) * part * rank).count(), part);
    }
    return bytes;
  }
  const bool scatters = any.kind == CollectiveKind::reduce_scatter;
  const std::int64_t elements = any.elements / (scatters ? ranks : 1);
  std::vector<double> sum(static_cast<std::size_t>(elements)), other(sum.size());
  for (const Exchange& one : all) {
    const kernels::ConstTensor whole{{one.dtype, one.elements}, one.from};
    Convert(kernels::Slice(whole, scatters ? rank * elements : 0, elements), {{DType::fp64, elements}, other.data()});
    if (&one == &any) {
      sum = other;
      continue;
    }
    for (std::size_t e = 0; e < other.size(); ++e) {
      sum[e] = one.reduction == Reduction::max ? std::max(sum[e], other[e]) : sum[e] + other[e];
    }
  }
  bytes.resize(static_cast<std::size_t>((SizeOf(any.dtype) * elements).count()));
  Convert({{DType::fp64, elements}, sum.data()}, {{any.dtype, elements}, bytes.data()});
  return bytes;
}

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(Rendezvous& rendezvous, std::int64_t rank) : rendezvous_(rendezvous), rank_(rank) {}

  Rendezvous& rendezvous() const { return rendezvous_; }
  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return rendezvous_.size(); }
  Result<Ticket> Begin(const Exchange& exchange) override {
    std::vector<char> bytes;
    rendezvous_.Meet(rank_, exchange, 0, [&](const Rendezvous& all) {
      std::vector<Exchange> exchanges;
      for (std::int64_t i = 0; i < all.size(); ++i) {
        exchanges.push_back(all.exchange(i));
      }
      bytes = ResultOf(exchanges, rank_);
    });
    results_.push_back([to = exchange.to, bytes = std::move(bytes)] { std::memcpy(to, bytes.data(), bytes.size()); });
    return Ticket{results_.size() - 1};
  }
  Status Send(const Message& message, const void* data) override {
    const auto* from = static_cast<const char*>(data);
    rendezvous_.Post({rank_, message.peer, message.tag}, {from, from + BytesOf(message)});
    return Done{};
  }
  Result<Ticket> Receive(const Message& message, void* data) override {
    results_.push_back([=, this] {
      const std::vector<char> bytes = rendezvous_.Take({message.peer, rank_, message.tag});
      EXPECT_EQ(std::ssize(bytes), BytesOf(message));
      std::memcpy(data, bytes.data(), bytes.size());
    });
    return Ticket{results_.size() - 1};
  }
  Status Finish(Ticket ticket) override {
    std::exchange(results_[static_cast<std::size_t>(ticket)], [] {})();
    return Done{};
  }

 private:
  static std::int64_t BytesOf(const Message& message) { return (SizeOf(message.dtype) * message.elements).count(); }

  Rendezvous& rendezvous_;
  std::int64_t rank_;
  std::vector<std::function<void()>> results_;
};

/// Groups are made in one order by all ranks.
class ThreadWorlds {
 public:
  explicit ThreadWorlds(std::int64_t ranks) : all_(ranks), next_(static_cast<std::size_t>(ranks)) {}

  std::unique_ptr<World> Of(std::int64_t rank) { return std::make_unique<One>(*this, rank); }

 private:
  class One final : public World {
   public:
    One(ThreadWorlds& worlds, std::int64_t rank) : worlds_(worlds), rank_(rank) {}

    std::int64_t rank() const override { return rank_; }
    std::int64_t size() const override { return worlds_.all_.size(); }
    std::int64_t ranks_here() const override { return size(); }
    Result<std::unique_ptr<Communicator>> Split(std::int64_t colour) override {
      std::int64_t members = 0, own = 0;
      worlds_.all_.Meet(rank_, {}, static_cast<double>(colour), [&](const Rendezvous& all) {
        for (std::int64_t i = 0; i < all.size(); ++i) {
          const bool same = all.value(i) == static_cast<double>(colour);
          own += same && i < rank_ ? 1 : 0;
          members += same ? 1 : 0;
        }
      });
      const std::lock_guard lock(worlds_.mutex_);
      const std::int64_t which = worlds_.next_[static_cast<std::size_t>(rank_)]++;
      std::unique_ptr<Rendezvous>& rendezvous = worlds_.groups_[{which, colour}];
      if (!rendezvous) {
        rendezvous = std::make_unique<Rendezvous>(members);
      }
      return std::unique_ptr<Communicator>(std::make_unique<ThreadCommunicator>(*rendezvous, own));
    }
    double Highest(double value) override {
      return Fold(value, [](double a, double b) { return std::max(a, b); });
    }
    double Sum(double value) override { return Fold(value, std::plus<>()); }
    std::vector<std::string> GatherTexts(const std::string& text) override { return {text}; }
    void Abort(int) override { std::abort(); }

   private:
    double Fold(double value, const std::function<double(double, double)>& join) {
      double folded = 0;
      worlds_.all_.Meet(rank_, {}, value, [&](const Rendezvous& all) {
        folded = all.value(0);
        for (std::int64_t i = 1; i < all.size(); ++i) {
          folded = join(folded, all.value(i));
        }
      });
      return folded;
    }

    ThreadWorlds& worlds_;
    std::int64_t rank_;
  };

  Rendezvous all_;
  std::mutex mutex_;
  std::vector<std::int64_t> next_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<Rendezvous>> groups_;
};

using RunRank = std::function<Result<RunOutcome>(World& world)>;

/// Every rank's outcome. A job whose steps fail on one rank would leave the others waiting, and ends the test program.
inline std::vector<RunOutcome> RunTogether(std::int64_t count, const RunRank& run_rank) {
  ThreadWorlds worlds(count);
  std::vector<RunOutcome> outcomes(static_cast<std::size_t>(count));
  std::vector<std::thread> ranks;
  for (std::int64_t rank = 0; rank < count; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto world = worlds.Of(rank);
      auto run = run_rank(*world);
      if (!run.ok()) {
        std::fprintf(stderr, "rank %lld: %s\n", static_cast<long long>(rank), run.error().Text().c_str());
        std::abort();
      }
      outcomes[static_cast<std::size_t>(rank)] = std::move(*run);
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  return outcomes;
}

inline std::vector<RunOutcome> RunTogether(const Job& job, const std::vector<RunStep>& steps,
                                           const RunOptions& options = {}) {
  return RunTogether(job.Ranks(), [&](World& world) { return RunSteps(job, steps, options, world); });
}

inline std::vector<RunOutcome> ExecutedTogether(const Job& job, std::int64_t steps, const RunOptions& options = {}) {
  return RunTogether(job, LoweredSteps(job, steps).steps(), options);
}

}  // namespace tidemark
