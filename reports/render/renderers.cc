// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "reports/render/render.h"

namespace tidemark {
namespace {

template <class Report>
std::string RenderBy(std::string_view name, const Report& report, const RenderOptions& options) {
  for (const auto& renderer : MakeRenderers()) {
    if (renderer->name() == name) {
      return renderer->Render(report, options);
    }
  }
  const bool the_renderer_exists = false;
  TIDEMARK_CHECK(the_renderer_exists);
  return {};
}

}  // namespace

std::string RenderAs(std::string_view name, const PredictionReport& report, const RenderOptions& options) {
  return RenderBy(name, report, options);
}

std::string RenderAs(std::string_view name, const TraceReport& report, const RenderOptions& options) {
  return RenderBy(name, report, options);
}

std::string RenderAs(std::string_view name, const AuditReport& report, const RenderOptions& options) {
  return RenderBy(name, report, options);
}

std::string RenderAs(std::string_view name, const Explanation& explanation, const RenderOptions& options) {
  return RenderBy(name, explanation, options);
}

std::string RenderAs(std::string_view name, const ComparisonReport& report, const RenderOptions& options) {
  return RenderBy(name, report, options);
}

std::string RenderAs(std::string_view name, const SweepReport& report, const RenderOptions& options) {
  return RenderBy(name, report, options);
}

std::string RenderAs(std::string_view name, const Advice& advice, const RenderOptions& options) {
  return RenderBy(name, advice, options);
}

std::string RenderAs(std::string_view name, const Solution& solution, const RenderOptions& options) {
  return RenderBy(name, solution, options);
}

std::string RenderAs(std::string_view name, const ReplayReport& report, const RenderOptions& options) {
  return RenderBy(name, report, options);
}

std::string RenderAs(std::string_view name, const CheckReport& report, const RenderOptions& options) {
  return RenderBy(name, report, options);
}

}  // namespace tidemark
