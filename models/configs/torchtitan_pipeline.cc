// SPDX-License-Identifier: Apache-2.0
#include "models/configs/torchtitan_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

namespace tidemark {
namespace {

constexpr std::string_view kSchedule = "parallelism.pipeline_parallel_schedule";
constexpr std::string_view kLayers = "parallelism.pipeline_parallel_layers_per_stage";
constexpr std::string_view kModules = "parallelism.module_fqns_per_model_part";

}  // namespace

Result<std::vector<std::int64_t>> TorchtitanStages(std::int64_t stages, std::int64_t layers, std::int64_t first,
                                                   std::int64_t last) {
  const std::int64_t all = layers + first + last;
  if (all / stages < std::max<std::int64_t>({first, last, 1})) {
    return BadInput(fmt::format("{} layers, embedding and head included, are too few for {} stages", all, stages),
                    "use fewer stages");
  }
  std::vector<std::int64_t> cut(static_cast<std::size_t>(stages), all / stages);
  std::for_each_n(cut.begin(), all % stages, [](std::int64_t& count) { ++count; });
  cut.front() -= first;
  cut.back() -= last;
  if (std::ranges::find(cut, 0) != cut.end()) {
    return BadInput(
        fmt::format("{} stages of {} layers leave one without a layer, which is not supported by this version", stages,
                    layers),
        "use fewer stages");
  }
  return cut;
}

Status ReadTorchtitanPipeline(const ToolFields& fields, const ConfigValue& degree, std::int64_t ranks,
                              std::int64_t layers, Settings& settings) {
  const Choice<std::string> schedules{{{"1F1B", "1f1b"}, {"GPipe", "gpipe"}, {"Interleaved1F1B", "interleaved"}},
                                      {"InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV", "LoopedBFS"}};
  TIDEMARK_ASSIGN(const std::string schedule, fields.OneOf(schedules, kSchedule, "1F1B"));
  settings["schedule"] = fields.Retold(kSchedule, "1F1B", schedule);
  if (const ConfigValue* modules = fields.Given(kModules)) {
    return ErrorAt(*modules, kModules, "stages that are named module by module are not supported by this version",
                   "remove the field, and give their layers: --set 'layout.layers_per_stage=[8, 9, 9, 6]'");
  }
  TIDEMARK_ASSIGN(const std::int64_t first,
                  fields.Whole("parallelism.pipeline_parallel_first_stage_less_layers", 1, 0));
  TIDEMARK_ASSIGN(const std::int64_t last, fields.Whole("parallelism.pipeline_parallel_last_stage_less_layers", 1, 0));
  const std::int64_t all = layers + first + last;
  const bool several = schedule == "interleaved";  // stages on a rank
  std::int64_t stages = several ? 2 * ranks : ranks;
  if (fields.Given(kLayers) != nullptr) {
    TIDEMARK_ASSIGN(const std::int64_t count, fields.Whole(kLayers, 1));
    stages = (all + count - 1) / count;
    if (stages % ranks != 0 || several != (stages > ranks)) {
      return fields.Refuse(
          kLayers, "",
          fmt::format("makes {} stages of {} layers, embedding and head included, which {} cannot put on {} ranks",
                      stages, all, schedule, ranks),
          "one stage for each rank, or under Interleaved1F1B two or more");
    }
  }
  TIDEMARK_ASSIGN(const std::vector<std::int64_t> cut,
                  TorchtitanStages(stages, layers, first, last).At(degree.where + ": layout.pp"));
  settings["layout.vpp"] = fields.Retold(kSchedule, "1F1B", std::to_string(stages / ranks));
  ConfigValue list = Retold(degree, {});
  list.kind = ConfigValue::Kind::list;
  for (const std::int64_t count : cut) {
    list.items.push_back(MakeScalar(std::to_string(count), list.source));
  }
  settings["layout.layers_per_stage"] = std::move(list);
  return Done{};
}

}  // namespace tidemark
