// SPDX-License-Identifier: Apache-2.0
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
  return {FieldAt<J>(
              "recompute.policy", [](J & j) -> auto& { return j.axes.recompute.policy; }, RecomputePolicy()),
          FieldAt<J>(
              "recompute.every", [](J & j) -> auto& { return j.axes.recompute.every; }, kLayers),
          FieldAt<J>(
              "recompute.attention", [](J & j) -> auto& { return j.axes.recompute.attention; }, Truth{}),
          FieldAt<J>(
              "recompute.norm", [](J & j) -> auto& { return j.axes.recompute.norm; }, Truth{}),
          FieldAt<J>(
              "recompute.activation", [](J & j) -> auto& { return j.axes.recompute.activation; }, Truth{}),
          FieldAt<J>(
              "recompute.feed_forward", [](J & j) -> auto& { return j.axes.recompute.feed_forward; }, Truth{}),
          FieldAt<J>(
              "recompute.latent_heads", [](J & j) -> auto& { return j.axes.recompute.latent_heads; }, Truth{}),
          FieldAt<J>(
              "recompute.needed_only", [](J & j) -> auto& { return j.axes.recompute.needed_only; }, Truth{}),
          GathersAgain()};
}

}  // namespace tidemark
