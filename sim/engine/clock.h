// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "sim/engine/evaluation.h"
#include "sim/engine/regime.h"
#include "sim/engine/time_program.h"

namespace tidemark {

/// Moments and parts of one role, and how each op moves them. `choices` is a running hash of every comparison. The
/// program must outlive it.
class Clock {
 public:
  Clock(const TimeProgram& program, std::int64_t host_issue)
      : program_(program), host_issue_(host_issue), values_(program_.moments() + kParts) {}

  const TimeProgram& program() const { return program_; }
  std::vector<std::int64_t>& values() { return values_; }
  std::size_t moments() const { return program_.moments(); }
  std::uint64_t choices = 0;

  /// Ops [at, end) without messages.
  void Run(std::size_t at, std::size_t end, RegimeScratch& scratch);

  /// Any but messages, loops and `kernels`.
  void Do(const Op& op) {
    switch (op.code) {
      case Op::Code::kernel:
        return Kernel(op);
      case Op::Code::issue:
        return IssueOn(op.stream, op.amount);
      case Op::Code::host:
        values_[kHostAt] += op.amount;
        return;
      case Op::Code::record:
        Event(op.other) = Stream(op.stream);
        return;
      case Op::Code::wait:
        if (op.stream == program_.compute_stream) {
          Idle(program_.event_cause[op.other], Event(op.other));
        } else {
          Stream(op.stream) = Later(Stream(op.stream), Event(op.other));
        }
        return;
      case Op::Code::sync:
        return Block(Stream(op.stream), program_.stream_cause[op.stream]);
      case Op::Code::sync_device: {
        const std::int64_t end = DeviceEnd();
        return Block(end, CauseOfEnd(end));
      }
      case Op::Code::kernels:
      case Op::Code::send:
      case Op::Code::recv:
      case Op::Code::repeat:
        break;
    }
    TIDEMARK_CHECK(false && "messages and loops are not single ops");
  }
  /// Of code `kernels`: whether it has done what they all do, so that they are to be left out.
  bool Kernels(const Op& op) {
    std::int64_t& ready = Stream(op.stream);
    const bool ahead = ready - values_[kHostAt] >= op.lead;
    Chose(ahead ? 1 : 0);
    if (ahead) {
      values_[kHostAt] += host_issue_ * op.other;
      PartOf(op.detail) += op.amount;
      ready += op.amount;
    }
    return ahead;
  }
  std::int64_t Send(const Op& op) {
    IssueOn(op.stream, op.amount);
    return Stream(op.stream);
  }
  void Recv(const Op& op, std::int64_t arrival) {
    IssueOn(op.stream, 0);
    Stream(op.stream) = Later(Stream(op.stream), arrival);
  }

  std::int64_t DeviceEnd() {
    std::int64_t end = 0;
    for (std::uint32_t i = 1; i < program_.streams; ++i) {
      end = Later(end, Stream(i));
    }
    return end;
  }
  std::int64_t End() { return Later(DeviceEnd(), values_[kHostAt]); }
  StepTime Time();

 private:
  std::int64_t& Stream(std::uint32_t stream) { return values_[kStreamsAt + stream]; }
  std::int64_t& Event(std::uint32_t event) { return values_[kStreamsAt + program_.streams + event]; }
  std::int64_t& PartOf(std::uint8_t part) { return values_[program_.moments() + part]; }

  /// Every choice passes here: the hash tells two iterations apart that chose differently.
  void Chose(std::uint64_t choice) { choices = MixChoices(choices, choice + 1); }

  std::int64_t Later(std::int64_t a, std::int64_t b) {
    Chose(b > a ? 1 : 0);
    return std::max(a, b);
  }

  void IssueOn(std::uint32_t stream, std::int64_t duration) {
    values_[kHostAt] += host_issue_;
    Stream(stream) = Later(values_[kHostAt], Stream(stream)) + duration;
  }

  /// The host waits until `moment`. Where that is for a collective, so does the compute stream, which it gives nothing
  /// meanwhile.
  void Block(std::int64_t moment, Cause cause) {
    const bool waits = moment > values_[kHostAt];
    Chose(waits ? 1 : 0);
    if (waits) {
      values_[kHostAt] = moment;
    }
    if (waits && cause == kCollective) {
      Idle(cause, moment);
    }
  }

  /// Of what ends then, of several the lowest.
  Cause CauseOfEnd(std::int64_t end) {
    Cause last = kHost;
    for (std::uint32_t i = 1; i < program_.streams; ++i) {
      Chose(Stream(i) == end ? 1 : 0);
      if (Stream(i) == end) {
        last = std::min(last, program_.stream_cause[i]);
      }
    }
    return last;
  }

  /// The compute stream has nothing to do until `moment`.
  void Idle(Cause cause, std::int64_t moment) {
    std::int64_t& ready = Stream(program_.compute_stream);
    const std::int64_t later = Later(ready, moment);
    PartOf(PartOfIdle(cause)) += later - ready;
    ready = later;
  }

  void Kernel(const Op& op) {
    values_[kHostAt] += host_issue_;
    Idle(kHost, values_[kHostAt]);
    PartOf(op.detail) += op.amount;
    Stream(op.stream) += op.amount;
  }

  const TimeProgram& program_;
  std::int64_t host_issue_;
  std::vector<std::int64_t> values_;  ///< moments, then parts
};

}  // namespace tidemark
