// SPDX-License-Identifier: Apache-2.0
#include "reports/render/report_json.h"

#include "reports/render/advice_json.h"
#include "reports/summarise/yaml_json.h"

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

Json OptionJson(const SolvedOption& option) {
  Json json = {{"change", option.change}, {"kind", option.differs_in.empty() ? "fastest" : "other"}};
  json["differs_in"] = option.differs_in;
  json.update(CostJson(option.cost));
  json["tokens_per_s_per_gpu"] = option.tokens_per_s_per_gpu;
  json["mfu"] = option.mfu ? Json(*option.mfu) : Json(nullptr);
  json["saved_bytes"] = option.saved ? Json(option.saved->count()) : Json(nullptr);
  json["lost_ns"] = option.lost ? Json(option.lost->count()) : Json(nullptr);
  json["lints"] = option.lints;
  json["command"] = option.command;
  return json;
}

}  // namespace

Json MakeJson(const Solution& solution) {
  Json json = {{"schema", "tidemark.advice/1"},
               {"title", solution.title},
               {"job", JsonOfYaml(solution.job_yaml)},
               {"machine", solution.machine},
               {"device_memory_bytes", solution.memory.count()},
               {"global_batch", solution.global_batch},
               {"ranks", solution.ranks},
               {"varied", solution.varied},
               {"now", solution.now ? CostJson(*solution.now) : Json(nullptr)},
               {"begins", solution.begins},
               {"refusal", solution.now ? Json(nullptr) : Json(solution.refusal)}};
  json["options"] = Json::array();
  for (const SolvedOption& option : solution.options) {
    json["options"].push_back(OptionJson(option));
  }
  json["nearest"] = solution.nearest ? OptionJson(*solution.nearest) : Json(nullptr);
  json["size"] = solution.size;
  json["fit"] = solution.fit;
  json["near"] = solution.near;
  json["too_large"] = solution.too_large;
  json["refused"] = solution.refused;
  json["refusals"] = Json::array();
  for (const SweepRefusal& refusal : solution.refusals) {
    json["refusals"].push_back({{"reason", refusal.reason}, {"count", refusal.count}});
  }
  json["altering"] = solution.altering;
  json["tight"] = solution.tight;
  json["complete"] = solution.complete;
  json["seconds"] = solution.seconds;
  json["provenance"] = {{"version", solution.version}};
  return json;
}

}  // namespace tidemark
