// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "reports/summarise/advice.h"
#include "reports/summarise/audit.h"
#include "reports/summarise/check_report.h"
#include "reports/summarise/comparison.h"
#include "reports/summarise/explanation.h"
#include "reports/summarise/prediction.h"
#include "reports/summarise/replay.h"
#include "reports/summarise/solution.h"
#include "reports/summarise/sweep.h"
#include "reports/summarise/trace_report.h"

namespace tidemark {

struct RenderOptions {
  bool colour = false;  ///< terminal escapes; only where a person looks at a terminal
};

/// Turns a report into text. reports/render/render_<x>.cc defines `std::unique_ptr<Renderer> Render<X>()`; that file is
/// all a new renderer needs (cmake/table.cmake makes the table). Pure: the same report gives the same bytes.
class Renderer {
 public:
  virtual ~Renderer() = default;

  virtual std::string_view name() const = 0;     ///< "terminal", "json", "markdown", "html"
  virtual std::string_view summary() const = 0;  ///< one line, without a full stop

  virtual std::string Render(const PredictionReport& report, const RenderOptions& options) const = 0;
  virtual std::string Render(const TraceReport& report, const RenderOptions& options) const = 0;
  virtual std::string Render(const AuditReport& report, const RenderOptions& options) const = 0;
  virtual std::string Render(const Explanation& explanation, const RenderOptions& options) const = 0;
  virtual std::string Render(const ComparisonReport& report, const RenderOptions& options) const = 0;
  virtual std::string Render(const SweepReport& report, const RenderOptions& options) const = 0;
  virtual std::string Render(const Advice& advice, const RenderOptions& options) const = 0;
  virtual std::string Render(const Solution& solution, const RenderOptions& options) const = 0;
  virtual std::string Render(const ReplayReport& report, const RenderOptions& options) const = 0;
  virtual std::string Render(const CheckReport& report, const RenderOptions& options) const = 0;
};

/// All renderers, by name. Generated.
std::vector<std::unique_ptr<Renderer>> MakeRenderers();

/// Renders with the renderer of that name, which must exist.
std::string RenderAs(std::string_view name, const PredictionReport& report, const RenderOptions& options = {});
std::string RenderAs(std::string_view name, const TraceReport& report, const RenderOptions& options = {});
std::string RenderAs(std::string_view name, const AuditReport& report, const RenderOptions& options = {});
std::string RenderAs(std::string_view name, const Explanation& explanation, const RenderOptions& options = {});
std::string RenderAs(std::string_view name, const ComparisonReport& report, const RenderOptions& options = {});
std::string RenderAs(std::string_view name, const SweepReport& report, const RenderOptions& options = {});
std::string RenderAs(std::string_view name, const Advice& advice, const RenderOptions& options = {});
std::string RenderAs(std::string_view name, const Solution& solution, const RenderOptions& options = {});
std::string RenderAs(std::string_view name, const ReplayReport& report, const RenderOptions& options = {});
std::string RenderAs(std::string_view name, const CheckReport& report, const RenderOptions& options = {});

}  // namespace tidemark
