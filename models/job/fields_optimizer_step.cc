// SPDX-License-Identifier: Apache-2.0
#include "models/job/fields_optimizer_step.h"

namespace tidemark {
namespace {

/// A positive number; 0 is null.
struct NormOrNull {
  static constexpr RealNumber kNorms{1e-9, 1e9};
  Result<double> Read(const ConfigValue& value) const { return kNorms.Read(value); }
  std::string Write(double number) const { return number == 0 ? "null" : kNorms.Write(number); }
  std::string Example() const { return "1.0"; }
};

}  // namespace

void AddOptimizerStep(std::vector<Field<Job>>& fields) {
  using J = Job;
  using Kernel = OptimizerStep::Kernel;
  const Choice<Kernel> kernel{
      {{"fused", Kernel::fused}, {"foreach", Kernel::foreach_}, {"for-loop", Kernel::for_loop}}};
  fields.insert(
      fields.end(),
      {FieldAt<J>(
           "optimizer_step.kernel", [](J & j) -> auto& { return j.axes.optimizer_step.kernel; }, kernel),
       FieldAt<J>(
           "optimizer_step.clip_norm", [](J & j) -> auto& { return j.axes.optimizer_step.clip_norm; }, NormOrNull{}),
       FieldAt<J>(
           "optimizer_step.in_backward", [](J & j) -> auto& { return j.axes.optimizer_step.in_backward; }, Truth{}),
       FieldAt<J>(
           "optimizer_step.offload", [](J & j) -> auto& { return j.axes.optimizer_step.offload; }, Truth{})});
}

}  // namespace tidemark
