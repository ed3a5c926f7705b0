// SPDX-License-Identifier: Apache-2.0
#include "cli/rank_peak.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace tidemark {
namespace {

using nlohmann::json;

/// What a report tells of tensors that are alive.
json EncodeLive(const std::vector<LiveBuffers>& all) {
  json list = json::array();
  for (const LiveBuffers& live : all) {
    list.push_back({live.name, static_cast<int>(live.category), live.count, live.bytes.count(), live.since.count(),
                    live.until ? json(live.until->count()) : json(), live.since_phase, live.until_phase,
                    static_cast<int>(live.dtype), live.sharding});
  }
  return list;
}

std::vector<LiveBuffers> DecodeLive(const json& list) {
  std::vector<LiveBuffers> all;
  for (const json& item : list) {
    LiveBuffers& live = all.emplace_back();
    live.name = item.at(0);
    live.category = static_cast<Category>(item.at(1).get<int>());
    live.count = item.at(2);
    live.bytes = Bytes(item.at(3).get<std::int64_t>());
    live.since = Nanos(item.at(4).get<std::int64_t>());
    if (!item.at(5).is_null()) {
      live.until = Nanos(item.at(5).get<std::int64_t>());
    }
    live.since_phase = item.at(6);
    live.until_phase = item.at(7);
    live.dtype = static_cast<DType>(item.at(8).get<int>());
    live.sharding = item.at(9);
  }
  return all;
}

std::string Encode(const RankPeak& of) {
  json by_category = json::array();
  for (std::size_t c = 0; c < kCategories; ++c) {
    by_category.push_back(of.peak.by_category[static_cast<Category>(c)].count());
  }
  return json{{"rank", of.rank},
              {"role", of.role},
              {"allocated", of.peak.allocated.count()},
              {"by_category", by_category},
              {"phase", of.peak.phase},
              {"microbatch", of.peak.microbatch},
              {"side", of.peak.side},
              {"step", of.peak.step},
              {"at", of.peak.at ? json(of.peak.at->count()) : json()},
              {"live", EncodeLive(of.peak.live)},
              {"allocator", of.allocator.count()},
              {"reserved", of.reserved.count()},
              {"mapped", of.mapped.count()},
              {"cache_flushes", of.cache_flushes}}
      .dump();
}

RankPeak Decode(const std::string& text) {
  const json read = json::parse(text);
  const auto bytes = [&](const char* key) { return Bytes(read.at(key).get<std::int64_t>()); };
  RankPeak of{read.at("rank"), read.at("role"),         {}, bytes("allocator"), bytes("reserved"),
              bytes("mapped"), read.at("cache_flushes")};
  of.peak.allocated = bytes("allocated");
  for (std::size_t c = 0; c < kCategories; ++c) {
    of.peak.by_category[static_cast<Category>(c)] = Bytes(read.at("by_category").at(c).get<std::int64_t>());
  }
  of.peak.phase = read.at("phase");
  of.peak.microbatch = read.at("microbatch");
  of.peak.side = read.at("side");
  of.peak.step = read.at("step");
  if (!read.at("at").is_null()) {
    of.peak.at = Nanos(read.at("at").get<std::int64_t>());
  }
  of.peak.live = DecodeLive(read.at("live"));
  return of;
}

}  // namespace

RankPeak HighestPeak(World& world, const RunOutcome& own) {
  RankPeak highest{world.rank(),      own.trace.role,  SummarisePeak(own.trace), own.allocator_peak,
                   own.reserved_peak, own.mapped_peak, own.cache_flushes};
  for (const std::string& text : world.GatherTexts(Encode(highest))) {
    RankPeak other = Decode(text);
    if (other.peak.allocated > highest.peak.allocated) {
      highest = std::move(other);
    }
  }
  return highest;
}

}  // namespace tidemark
