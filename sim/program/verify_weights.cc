// SPDX-License-Identifier: Apache-2.0
#include "sim/program/verify_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sim/program/walk.h"

namespace tidemark {
namespace {

using Rule = Finding::Rule;

bool IsUpdate(const Node& node) {
  const auto* compute = std::get_if<Compute>(&node);
  return compute != nullptr && std::holds_alternative<OptimizerUpdate>(compute->op);
}

/// What casts or copies updated weights.
bool IsOfOptimizer(const Node& node) {
  const auto* compute = std::get_if<Compute>(&node);
  return compute != nullptr && compute->work == Work::optimizer;
}

/// Follows which weights have been updated in the pass that runs.
class PassFollower {
 public:
  explicit PassFollower(const Program& program) : program_(program) {}

  void Run(Findings& findings) {
    ForEachLeaf(program_, [&](std::size_t at, std::span<const std::int64_t> loops) {
      const Node& node = program_.nodes[at];
      if (std::holds_alternative<Begin>(node)) {
        ++depth_;
      } else if (std::holds_alternative<End>(node)) {
        if (--depth_ == 0) {
          updated_.clear();
        }
      } else if (IsUpdate(node)) {
        Update(std::get<Compute>(node), at, loops);
      } else if (!updated_.empty() && !IsOfOptimizer(node)) {
        Read(node, loops, findings);
      }
      return !findings.full();
    });
  }

 private:
  using Member = std::pair<std::uint32_t, std::int64_t>;
  struct Updated {
    std::size_t at;  ///< the node
    std::vector<std::int64_t> loops;
  };

  const Buffer& BufferOf(const BufferRef& ref) const { return program_.buffers[ref.buffer.index]; }
  Member MemberAt(const BufferRef& ref, std::span<const std::int64_t> loops) const {
    return {ref.buffer.index, MemberOf(BufferOf(ref), ref, loops)};
  }

  void Update(const Compute& leaf, std::size_t at, std::span<const std::int64_t> loops) {
    for (const BufferRef& ref : leaf.writes) {
      if (BufferOf(ref).category == Category::parameter) {
        updated_[MemberAt(ref, loops)] = {at, {loops.begin(), loops.end()}};
      }
    }
  }

  void Read(const Node& node, std::span<const std::int64_t> loops, Findings& findings) {
    ForEachAccess(node, [&](const BufferRef& ref, Access access) {
      if (access != Access::read || BufferOf(ref).category != Category::parameter) {
        return;
      }
      if (const auto update = updated_.find(MemberAt(ref, loops)); update != updated_.end()) {
        findings.Add({Rule::early_update, program_.role_index, update->second.at, ref.buffer.index},
                     fmt::format("{}: {} is updated before {} reads it",
                                 DescribeNode(program_, update->second.at, update->second.loops), BufferOf(ref).name,
                                 ShortName(program_, node)));
      }
    });
  }

  const Program& program_;
  std::map<Member, Updated> updated_;
  int depth_ = 0;  ///< of phases
};

}  // namespace

void CheckEarlyUpdates(const Program& program, Findings& findings) {
  if (std::any_of(program.nodes.begin(), program.nodes.end(), IsUpdate)) {
    PassFollower(program).Run(findings);
  }
}

}  // namespace tidemark
