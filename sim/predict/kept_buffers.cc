// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/kept_buffers.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "sim/program/idle_buffers.h"
#include "sim/program/stages.h"

namespace tidemark {

std::vector<KeptBuffers> FindKept(const StepProgram& program, const Strategy& strategy) {
  const std::vector<IdleClaim> claims = strategy.IdleClaims();
  std::map<std::string, KeptBuffers> worst;  // by KeptBuffers::buffers
  for (const Program& role : program.roles) {
    const auto claim_of = [&](BufferId family) {
      const auto names = [&](const IdleClaim& claim) { return claim.Names(role.buffers[family.index].name); };
      return static_cast<std::size_t>(std::find_if(claims.begin(), claims.end(), names) - claims.begin());
    };
    const auto group_of = [&](BufferId family) {
      const std::size_t claim = claim_of(family);
      return claim < claims.size() ? claim : claims.size() + family.index;
    };
    for (IdleBuffers& idle : FindIdle(role, group_of)) {
      const std::size_t claim = claim_of(idle.families.front());
      KeptBuffers kept{{}, {}, idle.most, std::move(idle.last_used_by), idle.freed_in, role.role, role.role_index};
      if (claim < claims.size()) {
        kept.buffers = fmt::format("{}", fmt::join(claims[claim].buffers, ", "));
        kept.why = claims[claim].why;
      } else {
        kept.buffers = WithoutStage(role.buffers[idle.families.front().index].name);
      }
      const auto [at, is_new] = worst.try_emplace(kept.buffers, kept);
      if (!is_new && at->second.bytes < kept.bytes) {
        at->second = std::move(kept);
      }
    }
  }
  std::vector<KeptBuffers> all;
  for (auto& [buffers, kept] : worst) {
    all.push_back(std::move(kept));
  }
  std::stable_sort(all.begin(), all.end(), [](const KeptBuffers& a, const KeptBuffers& b) {
    return std::tuple(!a.why.empty(), b.bytes) < std::tuple(!b.why.empty(), a.bytes);
  });
  return all;
}

}  // namespace tidemark
