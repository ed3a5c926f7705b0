// SPDX-License-Identifier: Apache-2.0
#include "cli/rank_peak.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace tidemark {
namespace {

using nlohmann::json;

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
