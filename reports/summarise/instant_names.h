// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "traces/trace.h"

namespace tidemark {

/// What a trace calls the instants of its memory events: by their phases, before the first of these, and else by the
/// clock. The trace must outlive it. Cost: linear in the events, once.
class InstantNames {
 public:
  explicit InstantNames(const Trace& trace);

  /// "forward 0", of several steps "forward 0, step 2"; "before the step": resident; "at 3.20 ms" outside of phases.
  /// Where a trace has no phases at all, "the beginning" is its first instant.
  std::string Born(std::size_t alloc) const;
  std::string Died(std::size_t free) const;
  /// Of what is never freed: "after the step", or "the end".
  std::string Never() const;

 private:
  bool has_phases() const { return first_phased_ < trace_.memory.size(); }
  std::string At(std::size_t event) const;
  std::string OfStep(const char* where) const;

  const Trace& trace_;
  std::size_t first_phased_ = 0;  // memory event
};

}  // namespace tidemark
