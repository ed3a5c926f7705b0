// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/engine/closed_form.h"
#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "tests/sim/ledger.h"
#include "tests/sim/oracle_job.h"
#include "tests/sim/sound_program.h"

namespace tidemark::deepspeed {

constexpr std::int64_t kP = 110'633'984;
constexpr std::int64_t kPart = kP / 4;
constexpr std::int64_t kHead = 32'768'000;  // the embedding and the head, each
inline const std::vector<std::string> kAll = {"deepspeed-zero0", "deepspeed-zero1", "deepspeed-zero2", "deepspeed-bf16",
                                              "deepspeed-coalesce"};

inline Ledger LedgerOf(const Job& job, StepKind kind = StepKind::steady) {
  return Audit(Sound(job, kind), job.machine);
}

/// (count, payload, wire) of one kind over the data-parallel group.
inline CommunicationRow RowOf(const Job& job, const std::string& kind) {
  CommunicationRow sum;
  for (const CommunicationRow& row : CountCommunication(Sound(job).roles.front())) {
    if (row.kind == kind && row.group == "dp") {
      sum.count += row.count;
      sum.payload += row.payload;
      sum.wire += row.wire;
    }
  }
  return sum;
}

inline std::int64_t WireOf(const Job& job) {
  std::int64_t wire = 0;
  for (const CommunicationRow& row : CountCommunication(Sound(job).roles.front())) {
    wire += row.wire.count();
  }
  return wire;
}

/// Payloads of one kind in issue order, elements.
inline std::vector<std::int64_t> PayloadsOf(const Job& job, CollectiveKind kind) {
  std::vector<std::int64_t> elements;
  for (const Node& node : Unroll(Sound(job).roles.front()).nodes) {
    const auto* collective = std::get_if<Collective>(&node);
    if (collective != nullptr && collective->kind == kind) {
      elements.push_back(collective->payload_elements);
    }
  }
  return elements;
}

inline std::int64_t Gradients(const CategoryBytes& live) {
  return (live[Category::gradient] + live[Category::accumulator]).count();
}

/// "key: message" of what is refused; empty where it is not.
inline std::string Refusal(const Job& job) {
  const Status status = FindStrategy(job.strategy)->Accept(job);
  return status.ok() ? std::string() : status.error().where + ": " + status.error().message;
}

/// Sizes of the flushes of one backward pass: what is divided by the number of ranks, elements.
inline std::vector<std::int64_t> FlushesOf(const Job& job) { return PayloadsOf(job, CollectiveKind::all_reduce); }

inline void ExpectEnginesAgree(const Job& job, StepKind kind) {
  const StepProgram step = Sound(job, kind);
  const std::vector<Costs> costs = PriceAll(step, job.machine);
  EXPECT_EQ(Simulate(step, costs), EvaluateClosedForm(step, costs)) << job.strategy;
}

}  // namespace tidemark::deepspeed
