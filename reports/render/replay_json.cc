// SPDX-License-Identifier: Apache-2.0
#include "reports/render/report_json.h"

#include "reports/render/role_json.h"
#include "reports/summarise/peak.h"

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

Json SettingJson(const ReplayedSetting& setting) {
  return {{"allocator", setting.allocator},
          {"allocator_bytes", setting.allocator_peak.count()},
          {"reserved_bytes", setting.reserved_peak.count()},
          {"unused_bytes", setting.unused.count()},
          {"releasable_bytes", setting.releasable.count()},
          {"fragmentation", setting.fragmentation()},
          {"cache_flushes", setting.cache_flushes},
          {"refused_bytes", OptionalBytes(setting.refused)},
          {"own", setting.own},
          {"command", setting.command}};
}

Json PinnedJson(const HeldSegment& segment) {
  Json holders = Json::array();
  for (const SegmentHolder& holder : segment.holders) {
    holders.push_back({{"name", holder.name},
                       {"category", Name(holder.category)},
                       {"count", holder.count},
                       {"bytes", holder.bytes.count()},
                       {"since", holder.since}});
  }
  return {{"segment_bytes", segment.bytes.count()},
          {"free_bytes", segment.free.count()},
          {"stream", segment.stream},
          {"held_by", std::move(holders)}};
}

}  // namespace

Json MakeJson(const ReplayReport& report) {
  const ReplayedSetting& replayed = report.replayed;
  Json json = {{"schema", "tidemark.replay/1"},
               {"title", report.title},
               {"trace", report.path},
               {"origin", report.origin},
               {"role", report.role},
               {"events", report.events},
               {"allocated_bytes", report.tensors_peak.count()},
               {"capacity_bytes", OptionalBytes(report.capacity)}};
  json.update(SettingJson(replayed));
  json["at"] = {{"phase", PhaseLabel(report.at)}, {"ns", report.at_ns.count()}};
  json["recorded"] = {{"allocator_bytes", OptionalBytes(report.recorded_allocator_peak)},
                      {"reserved_bytes", OptionalBytes(report.recorded_reserved_peak)}};
  json["pinned"] = Json::array();
  for (const HeldSegment& segment : report.pinned) {
    json["pinned"].push_back(PinnedJson(segment));
  }
  json["others"] = Json::array();
  for (const ReplayedSetting& setting : report.others) {
    json["others"].push_back(SettingJson(setting));
  }
  json["timeline"] = Json::array();
  for (const ReplayInstant& instant : report.timeline) {
    json["timeline"].push_back({{"ns", instant.at.count()},
                                {"allocated_bytes", instant.allocated.count()},
                                {"reserved_bytes", instant.reserved.count()}});
  }
  return json;
}

}  // namespace tidemark
