// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "traces/formats/torch_snapshot.h"
#include "traces/trace.h"

namespace tidemark {

/// Follows the scopes of one device's annotations in time and makes the trace's phases and steps of them.
class TorchScopes {
 public:
  TorchScopes(const TorchSnapshot& snapshot, std::size_t device, std::int64_t first_us, Trace& trace);

  /// Everything up to this time; `memory` events came before it. Times never run backwards.
  void Advance(std::int64_t time_us, std::size_t memory);
  /// The innermost phase that is open.
  std::uint16_t innermost() const { return open_.empty() ? kNoSpan : *open_.rbegin(); }
  /// Ends what is still open with the trace.
  void End(std::size_t memory);
  /// Whether there were more phases than a trace can name.
  bool too_many() const { return too_many_; }

 private:
  void Begin(const std::string& name, Nanos now, std::size_t memory);
  void Close(const std::string& name, Nanos now);
  void EndStep(std::size_t step, Nanos now);
  Nanos Since(std::int64_t time_us) const;

  Trace& trace_;
  std::int64_t first_us_;
  std::vector<const TorchAnnotation*> annotations_;  // in the order of their times
  std::size_t next_ = 0;
  std::map<std::string, std::vector<std::uint16_t>> open_by_name_;
  std::set<std::uint16_t> open_;
  std::map<std::string, std::size_t> open_steps_;  // by the name of the scope
  Nanos last_;
  bool too_many_ = false;
};

}  // namespace tidemark
