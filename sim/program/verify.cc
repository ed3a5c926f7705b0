// SPDX-License-Identifier: Apache-2.0
#include "sim/program/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "sim/program/hazards.h"
#include "sim/program/text.h"
#include "sim/program/verify_gradients.h"
#include "sim/program/verify_host.h"
#include "sim/program/verify_role.h"
#include "sim/program/verify_weights.h"

namespace tidemark {
namespace {

using Rule = Finding::Rule;
using Messages = std::vector<Bytes>;

/// What a role shows to the others, and who it is.
struct RoleView {
  const Program* program;
  RoleTraffic traffic;
};

const Messages& MessagesOf(const std::map<std::string, Messages>& by_channel, const std::string& name) {
  static const Messages kNone;
  const auto found = by_channel.find(name);
  return found == by_channel.end() ? kNone : found->second;
}

/// Both ends of one channel.
struct ChannelEnds {
  Channel channel;
  Messages sent, received;
};

/// Joins what each role says about its channels; a role that is not an end of a channel must not use it.
std::map<std::string, ChannelEnds> JoinChannels(const std::vector<RoleView>& roles, Findings& findings) {
  std::map<std::string, ChannelEnds> ends;
  for (const RoleView& role : roles) {
    for (std::size_t i = 0; i < role.program->channels.size(); ++i) {
      const Channel& channel = role.program->channels[i];
      ChannelEnds& end = ends.try_emplace(channel.name, ChannelEnds{channel, {}, {}}).first->second;
      const Messages& sent = MessagesOf(role.traffic.sent, channel.name);
      const Messages& received = MessagesOf(role.traffic.received, channel.name);
      const std::int64_t index = role.program->role_index;
      if (channel.from_role != end.channel.from_role || channel.to_role != end.channel.to_role ||
          (!sent.empty() && index != channel.from_role) || (!received.empty() && index != channel.to_role)) {
        findings.Add({Rule::send_without_recv, index, 0, i},
                     fmt::format("{}: channel {} leads from role {} to role {}, but role {} uses it otherwise",
                                 role.program->role, channel.name, end.channel.from_role, end.channel.to_role, index));
        continue;
      }
      end.sent.insert(end.sent.end(), sent.begin(), sent.end());
      end.received.insert(end.received.end(), received.begin(), received.end());
    }
  }
  return ends;
}

void CheckChannels(const std::vector<RoleView>& roles, Findings& findings) {
  std::size_t serial = 0;
  for (const auto& [name, ends] : JoinChannels(roles, findings)) {
    const Findings::Key key{Rule::send_without_recv, -1, 0, serial++};
    const auto [sent, received] =
        std::mismatch(ends.sent.begin(), ends.sent.end(), ends.received.begin(), ends.received.end());
    if (ends.sent.size() != ends.received.size()) {
      findings.Add(
          key, fmt::format("channel {}: role {} sends {} messages, role {} receives {}", name, ends.channel.from_role,
                           ends.sent.size(), ends.channel.to_role, ends.received.size()));
    } else if (sent != ends.sent.end()) {
      findings.Add(key, fmt::format("channel {}: message {} is sent with {} bytes and received with {}", name,
                                    sent - ends.sent.begin(), sent->count(), received->count()));
    }
  }
}

/// "all_reduce of 1024 fp32, sum", which the ranks of a group must agree on.
std::string Signature(const Collective* collective) {
  return collective == nullptr ? "nothing more"
                               : fmt::format("{} of {} {}, {}", Name(collective->kind), collective->payload_elements,
                                             Name(collective->dtype), Name(collective->reduction));
}

/// Compares two roles' collectives over `group`; says where they first differ.
void CompareCollectives(const std::string& group, const RoleView& first, const RoleView& second, Findings& findings) {
  const auto& left = first.traffic.collectives.at(group);
  const auto& right = second.traffic.collectives.at(group);
  for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    const std::string here = Signature(i < left.size() ? left[i] : nullptr);
    const std::string there = Signature(i < right.size() ? right[i] : nullptr);
    if (here != there) {
      findings.Add({Rule::collective_order, second.program->role_index, 0, std::hash<std::string>()(group)},
                   fmt::format("group {}, collective {}: {} issues {}, {} issues {}", group, i, first.program->role,
                               here, second.program->role, there));
      return;
    }
  }
}

void CheckCollectives(const std::vector<RoleView>& roles, Findings& findings) {
  std::map<std::string, const RoleView*> first_with;
  for (const RoleView& role : roles) {
    for (const auto& [group, collectives] : role.traffic.collectives) {
      const auto [first, added] = first_with.try_emplace(group, &role);
      if (!added) {
        CompareCollectives(group, *first->second, role, findings);
      }
    }
  }
}

void CheckClobbers(const StepProgram& step, Findings& findings) {
  for (const Program& program : step.roles) {
    for (const Hazard& hazard : FindHazards(program)) {
      findings.Add({Rule::clobbered_value, program.role_index, hazard.read_node, hazard.buffer.index},
                   fmt::format("{}: {}", program.role, Describe(program, hazard)));
    }
  }
}

}  // namespace

std::vector<Finding> Verify(const StepProgram& step, std::size_t limit) {
  Findings findings(limit);
  std::vector<RoleView> roles;
  for (const Program& program : step.roles) {
    if (CheckReferences(program, findings)) {
      RoleVerifier verifier(program, findings);
      verifier.Run();
      CheckPlaces(program, findings);
      roles.push_back({&program, std::move(verifier).TakeTraffic()});
    }
  }
  if (roles.size() == step.roles.size()) {
    CheckChannels(roles, findings);
    CheckCollectives(roles, findings);
  }
  if (findings.empty()) {
    // Both follow values through a program that is known to be well-formed.
    CheckGradients(step, findings);
    CheckClobbers(step, findings);
    for (const Program& program : step.roles) {
      CheckHostUpdates(program, findings);
      CheckEarlyUpdates(program, findings);
    }
  }
  return std::move(findings).Take();
}

bool IsWrongResult(Finding::Rule rule) {
  return rule == Rule::wrong_factor || rule == Rule::lost_gradient || rule == Rule::stale_gradient ||
         rule == Rule::clobbered_value || rule == Rule::lost_update || rule == Rule::early_update;
}

std::string_view Name(Finding::Rule rule) {
  static constexpr std::array<std::string_view, 20> kNames = {
      "bad_reference",     "used_before_alloc",   "allocated_twice",  "read_before_write",  "never_freed",
      "not_kept",          "wait_without_record", "unordered_access", "index_out_of_range", "unbalanced_phase",
      "send_without_recv", "collective_order",    "wrong_factor",     "lost_gradient",      "stale_gradient",
      "deadlock",          "clobbered_value",     "wrong_place",      "lost_update",        "early_update"};
  return kNames.at(static_cast<std::size_t>(rule));
}

}  // namespace tidemark
