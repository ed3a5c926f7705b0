// SPDX-License-Identifier: Apache-2.0
#include "sim/program/verify_weights.h"

#include <fmt/format.h>

#include <map>
#include <utility>
#include <variant>

#include "sim/program/walk.h"

namespace tidemark {
namespace {

using Rule = Finding::Rule;

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
      } else if (const auto* compute = std::get_if<Compute>(&node)) {
        std::holds_alternative<OptimizerUpdate>(compute->op) ? Update(*compute, at, loops)
                                                             : Read(*compute, at, loops, findings);
      }
      return true;
    });
  }

 private:
  using Member = std::pair<std::uint32_t, std::int64_t>;

  Member MemberAt(const BufferRef& ref, std::span<const std::int64_t> loops) const {
    const Buffer& buffer = program_.buffers[ref.buffer.index];
    return {ref.buffer.index, Resolve(ref.index[0], loops) * buffer.extents[1] + Resolve(ref.index[1], loops)};
  }
  bool IsWeight(const BufferRef& ref) const {
    return program_.buffers[ref.buffer.index].category == Category::parameter;
  }

  void Update(const Compute& leaf, std::size_t at, std::span<const std::int64_t> loops) {
    for (const BufferRef& ref : leaf.writes) {
      if (IsWeight(ref)) {
        updated_[MemberAt(ref, loops)] = at;
      }
    }
  }

  void Read(const Compute& leaf, std::size_t at, std::span<const std::int64_t> loops, Findings& findings) {
    if (leaf.work == Work::optimizer) {
      return;  // what casts or copies updated weights
    }
    for (const BufferRef& ref : leaf.reads) {
      if (const auto update = IsWeight(ref) ? updated_.find(MemberAt(ref, loops)) : updated_.end();
          update != updated_.end()) {
        findings.Add({Rule::early_update, program_.role_index, update->second, ref.buffer.index},
                     fmt::format("{}: {} is updated before {} reads it", DescribeNode(program_, update->second, loops),
                                 program_.buffers[ref.buffer.index].name, ShortName(program_, program_.nodes[at])));
      }
    }
  }

  const Program& program_;
  std::map<Member, std::size_t> updated_;  ///< by which node
  int depth_ = 0;                          ///< of phases
};

}  // namespace

void CheckEarlyUpdates(const Program& program, Findings& findings) { PassFollower(program).Run(findings); }

}  // namespace tidemark
