// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "profiler/execute/run.h"

namespace tidemark {

/// One rank of many that are not there: its groups are as large as they would be, its collectives do nothing. Memory is
/// that of a real rank; numbers are none.
class FakeWorld final : public World {
 public:
  /// Rank 0 of a job. What its groups are is found by asking which ones every rank would join.
  static FakeWorld Of(const Job& job) {
    std::vector<std::vector<std::int64_t>> colours;
    for (std::int64_t rank = 0; rank < job.Ranks(); ++rank) {
      FakeWorld world(rank, job.Ranks(), {});
      (void)GroupsOf(job, world);
      colours.push_back(std::move(world.asked_));
    }
    return FakeWorld(0, job.Ranks(), std::move(colours));
  }

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return size_; }
  std::int64_t ranks_here() const override { return 1; }
  Result<std::unique_ptr<Communicator>> Split(std::int64_t colour) override {
    std::int64_t members = 0;
    for (const std::vector<std::int64_t>& colours : colours_) {
      members += colours[asked_.size()] == colour ? 1 : 0;
    }
    asked_.push_back(colour);
    return std::unique_ptr<Communicator>(std::make_unique<Group>(members));
  }
  double Highest(double value) override { return value; }
  double Sum(double value) override { return value * static_cast<double>(size_); }
  std::vector<std::string> GatherTexts(const std::string& text) override { return {text}; }
  void Abort(int exit_code) override { std::exit(exit_code); }

 private:
  FakeWorld(std::int64_t rank, std::int64_t size, std::vector<std::vector<std::int64_t>> colours)
      : rank_(rank), size_(size), colours_(std::move(colours)) {}

  /// As its first member sees it, which rank 0 always is.
  class Group final : public Communicator {
   public:
    explicit Group(std::int64_t size) : size_(size) {}
    std::int64_t rank() const override { return 0; }
    std::int64_t size() const override { return size_; }
    Status Join() override {
      joined_ = true;
      return Done{};
    }
    Result<Ticket> Begin(const Exchange&) override {
      EXPECT_TRUE(joined_) << "an exchange of a group that has not met: the step's time contains the meeting";
      return Ticket{0};
    }
    Status Finish(Ticket) override { return Done{}; }
    Status Send(const Message&, const void*) override { return Done{}; }
    Result<Ticket> Receive(const Message&, void*) override { return Ticket{0}; }

   private:
    std::int64_t size_;
    bool joined_ = false;
  };

  std::int64_t rank_, size_;
  std::vector<std::vector<std::int64_t>> colours_;  ///< by rank: of each group it would join
  std::vector<std::int64_t> asked_;
};

}  // namespace tidemark
