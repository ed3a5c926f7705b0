// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/job/validate.h"
#include "sim/engine/simulate.h"
#include "sim/lower/lower.h"
#include "sim/predict/communication.h"
#include "tests/sim/ledger.h"
#include "tests/sim/oracle_job.h"

namespace tidemark {

/// The worked job of GradCache: B = 64 pairs a rank, representations of d = 1024 in fp32, chunks of 8, N = 4 ranks.
inline Job WorkedJob(const std::string& strategy, bool shared = false) {
  Job job = OracleJob(strategy, 1);
  DualEncoder network;
  Decoder& encoder = network.first;
  encoder.layers = 6;
  encoder.hidden = 256;
  encoder.ffn = 512;
  encoder.heads = encoder.kv_heads = 4;
  encoder.head_size = 64;
  encoder.vocabulary = 1000;
  encoder.causal = false;
  network.second = network.first;
  network.shared = shared;
  network.representation = 1024;
  job.network = {"towers", network, {}};
  job.sequence_length = 32;
  job.micro_batch_size = 64;
  job.axes.chunks = job.CachesRepresentations() ? 8 : 0;
  return job;
}

inline StepProgram MustLower(const Job& job, StepKind kind = StepKind::steady) {
  EXPECT_TRUE(Validate(job).ok()) << Validate(job).error().Text();
  Result<StepProgram> step = Lower(job, kind);
  EXPECT_TRUE(step.ok()) << step.error().Text();
  return *std::move(step);
}

/// What a step's buffers were, and how often each kernel ran.
class Diary : public Listener {
 public:
  explicit Diary(const Program& program) : program_(program) {}

  void OnAlloc(const BufferInstance& instance, Nanos, Nanos) override {
    const Buffer& buffer = program_.buffers[instance.buffer.index];
    ++born[buffer.name];
    bytes[buffer.name] = buffer.bytes().count();
    Count(buffer, 1);
    if (buffer.place == Place::device) {
      live += buffer.bytes();
      highest[phase_] = std::max(highest[phase_], live);
      highest_activations[phase_] = std::max(highest_activations[phase_], Activations(buffer, 1));
    }
  }
  void OnFree(const BufferInstance& instance, Nanos, Nanos) override {
    const Buffer& buffer = program_.buffers[instance.buffer.index];
    died_in[buffer.name].insert(phase_);
    Count(buffer, -1);
    if (buffer.place == Place::device) {
      live -= buffer.bytes();
      Activations(buffer, -1);
    }
  }
  void OnSlice(StreamId, NameId name, Nanos start, Nanos end) override {
    ++runs[program_.names[name.index]];
    time[program_.names[name.index]] += end - start;
  }
  void OnBegin(const Begin& begin, std::int64_t microbatch, Nanos) override {
    phase_ = begin.phase;
    for (std::size_t i = 0; i < kCategories; ++i) {
      Raise(static_cast<Category>(i));
    }
    const std::string chunk = begin.side == Side::none ? "" : fmt::format(" {} {}", Name(begin.side), microbatch);
    phases.push_back(std::string(Name(begin.phase)) + chunk);
  }
  void OnEnd(Phase, Nanos) override {}

  std::map<std::string, std::int64_t> born, bytes, runs;
  std::map<std::string, Nanos> time;
  std::map<std::string, std::set<Phase>> died_in;
  std::map<Phase, Bytes> highest, highest_activations;
  std::map<std::pair<Phase, Category>, std::int64_t> highest_of;  ///< bytes, on host and device
  std::vector<std::string> phases;                                ///< "C_backward query 2"
  Bytes live;

 private:
  void Count(const Buffer& buffer, std::int64_t sign) {
    live_of_[buffer.category] += buffer.bytes() * sign;
    Raise(buffer.category);
  }
  void Raise(Category category) {
    std::int64_t& highest_so_far = highest_of[{phase_, category}];
    highest_so_far = std::max(highest_so_far, live_of_[category].count());
  }
  Bytes Activations(const Buffer& buffer, std::int64_t sign) {
    if (buffer.category == Category::activation) {
      activations_ += buffer.bytes() * sign;
    }
    return activations_;
  }

  const Program& program_;
  Phase phase_ = Phase::load;
  Bytes activations_;
  CategoryBytes live_of_;
};

inline Diary Keep(const StepProgram& step, const Machine& machine) {
  Diary diary(step.roles.front());
  std::vector<Listener*> listeners = {&diary};
  Simulate(step, PriceAll(step, machine), listeners);
  return diary;
}

/// Messages of one kind over the data-parallel group.
inline CommunicationRow Messages(const StepProgram& step, const std::string& kind) {
  CommunicationRow sum;
  for (const CommunicationRow& row : CountCommunication(step.roles.front())) {
    if (row.kind == kind) {
      sum.count += row.count;
      sum.payload += row.payload;
      sum.wire += row.wire;
    }
  }
  return sum;
}

}  // namespace tidemark
