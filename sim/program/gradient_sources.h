// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "sim/program/program.h"

namespace tidemark {

/// Numbers the backward kernels that make weight gradients, for all roles of a step together.
class GradientSources {
 public:
  /// That of a kernel and of which of its calls within a backward pass. Backward passes walk the network alike, so the
  /// count of calls says which block's it is.
  std::int64_t Number(const std::string& kernel, std::int64_t call) {
    const auto [found, added] = numbers_.try_emplace({kernel, call}, static_cast<std::int64_t>(names_.size()));
    if (added) {
      names_.push_back(fmt::format("{}, block {} of its backward pass", kernel, call));
    }
    return found->second;
  }
  const std::string& Name(std::int64_t source) const { return names_[static_cast<std::size_t>(source)]; }

 private:
  std::map<std::pair<std::string, std::int64_t>, std::int64_t> numbers_;
  std::vector<std::string> names_;
};

/// Counts the calls of one role's kernels in its backward passes, and so finds which gradient a call makes. Names are
/// made for what is new only: of a loop's kernels every iteration is a call.
class KernelCalls {
 public:
  KernelCalls(const Program& program, GradientSources& sources) : program_(program), sources_(sources) {}

  void BeginPass() { calls_.clear(); }
  void EndWindow() { passes_.clear(); }
  /// The source of what the kernel at node `at` writes as number `write`.
  std::int64_t Next(std::size_t at, std::size_t write, std::int64_t microbatch) {
    const std::size_t output = OutputOf(at, write);
    const auto [call, first] = calls_.try_emplace(output);
    if (first) {
      call->second.pass = passes_[{output, microbatch}]++;
    }
    const Call now = call->second;
    ++call->second.count;
    const auto [known, is_new] = numbers_.try_emplace({output, now.pass, now.count});
    if (is_new) {
      known->second = sources_.Number(names_[output] + PassText(now.pass), now.count);
    }
    return known->second;
  }

 private:
  struct Call {
    std::int64_t pass =
        0;  ///< earlier passes over the microbatch that called it: one encoder may be run for both sides
    std::int64_t count = 0;  ///< earlier calls in this pass
  };

  /// Kernels of one name are one kernel, wherever they stand.
  std::size_t OutputOf(std::size_t at, std::size_t write) {
    const auto [found, is_new] = outputs_.try_emplace({at, write});
    if (is_new) {
      const std::string& kernel = program_.names[std::get<Compute>(program_.nodes[at]).name.index];
      // A rank that holds several stages names its kernels after them; two ranks may hold one stage.
      const std::string where = kernel.starts_with("stage ") ? "" : " of " + program_.role;
      const std::string name = fmt::format("{}{}, write {}", kernel, where, write);
      const auto [of_name, added] = by_name_.try_emplace(name, names_.size());
      if (added) {
        names_.push_back(name);
      }
      found->second = of_name->second;
    }
    return found->second;
  }

  static std::string PassText(std::int64_t pass) {
    return pass > 0 ? fmt::format(", pass {} over its microbatch", pass) : std::string();
  }

  const Program& program_;
  GradientSources& sources_;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> outputs_;  ///< by node and write
  std::map<std::string, std::size_t> by_name_;
  std::vector<std::string> names_;                                       ///< by output
  std::map<std::size_t, Call> calls_;                                    ///< of the pass under way, by output
  std::map<std::pair<std::size_t, std::int64_t>, std::int64_t> passes_;  ///< over a microbatch of the window
  std::map<std::tuple<std::size_t, std::int64_t, std::int64_t>, std::int64_t> numbers_;  ///< by output, pass and call
};

}  // namespace tidemark
