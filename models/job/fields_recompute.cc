// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "models/job/fields.h"

namespace tidemark {
namespace {

/// A second name for part of what buffers.tp_gather says. It sets nothing: whoever reads the job compares the two.
Field<Job> GathersAgain() {
  return {"recompute.tp_gather",
          [](Job&, const ConfigValue& value) -> Status {
            TIDEMARK_TRY(Truth{}.Read(value));
            return Done{};
          },
          [](const Job& job) { return Truth{}.Write(job.axes.buffers.gathers_again()); }, Truth{}.Example()};
}

Choice<Recompute::Policy> RecomputePolicy() {
  using Policy = Recompute::Policy;
  return {{{"none", Policy::none},
           {"selective", Policy::selective},
           {"full", Policy::full},
           {"every_n", Policy::every_n},
           {"per_op", Policy::per_op}}};
}

}  // namespace

std::vector<Field<Job>> RecomputeFields() {
  using J = Job;
  constexpr WholeNumber kLayers{1, Decoder::kMostLayers};
  std::vector<Field<Job>> fields = {
      FieldAt<J>(
          "recompute.policy", [](J & j) -> auto& { return j.axes.recompute.policy; }, RecomputePolicy()),
      FieldAt<J>(
          "recompute.every", [](J & j) -> auto& { return j.axes.recompute.every; }, kLayers)};
  for (const RecomputedPart& part : kRecomputedParts) {
    fields.push_back(FieldAt<J>(
        fmt::format("recompute.{}", part.name),
        [selected = part.selected](J& j) -> bool& { return j.axes.recompute.*selected; }, Truth{}));
  }
  fields.push_back(FieldAt<J>(
      "recompute.collectives", [](J & j) -> auto& { return j.axes.recompute.collectives; }, Truth{}));
  fields.push_back(FieldAt<J>(
      "recompute.needed_only", [](J & j) -> auto& { return j.axes.recompute.needed_only; }, Truth{}));
  fields.push_back(GathersAgain());
  return fields;
}

}  // namespace tidemark
