// SPDX-License-Identifier: Apache-2.0
#include "reports/render/render.h"

namespace tidemark {
namespace {

class JsonRenderer : public Renderer {
 public:
  std::string_view name() const override { return "json"; }
  std::string_view summary() const override {
    return "tidemark.prediction/1, report/1, audit/1, explanation/1, comparison/1, sweep/1, advice/1, replay/1 or "
           "check/1, for scripts and CI";
  }
  std::string Render(const Report& report, const RenderOptions&) const override { return report.json(); }
};

}  // namespace

std::unique_ptr<Renderer> RenderJson() { return std::make_unique<JsonRenderer>(); }

}  // namespace tidemark
